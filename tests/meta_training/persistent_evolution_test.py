"""Persistent evolution in discovery, against agents that live one by one."""

import dataclasses
import pathlib
from typing import Any

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks import small_runs
from configs import ablations
from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import persistent_evolution
from disco_rl.meta_training import population
from disco_rl.runtime import checkpointing
from disco_rl.runtime import files
from disco_rl.runtime import sharding

PAIRS, STD, UPDATES = 2, 0.3, 2
SETTINGS: dict[str, Any] = {
  **small_runs.SMALL_RULE,
  **ablations.VARIANTS['persistent_evolution'],
  'agents': 1,
  'chunk_size': 1,
  'persistent_pairs': PAIRS,
  'persistent_std': STD,
  # Without Adam for each agent, what the group returns is the gradient.
  'adam_per_agent': False,
  'inner_updates': UPDATES,
  'validation_trajectories': 2,
  # New agents act for two rollouts before their first update.
  'min_replay_batches': 1.0,
  # Agents learn fast enough for perturbations to show in their actions.
  'learning_rate': 0.1,
  # Each update and the validation are a rollout of 2 * 6 steps: two windows.
  'budgets': (2 * 3 * 12,),
}


@dataclasses.dataclass(frozen=True)
class Discovery:
  """One agent's place in a population, on the device."""

  config: meta_config.MetaTrainingConfig
  group: population.Group
  rule_params: types.Params


@pytest.fixture(scope='module')
def discovery() -> Discovery:
  config = discovering.config_of(**SETTINGS)
  rule, rule_params = build.make_rule(config)
  (group,) = build.make_groups(config, rule)
  return Discovery(config, group, rule_params)


def flat(tree: Any) -> np.ndarray:
  """The entries of all leaves."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@pytest.mark.slow
def test_agents_live_on_and_perturbations_add_up(discovery: Discovery) -> None:
  """Three windows with rules that change between them, then a reset.

  Each agent lives alone here, with the noise that its key determines, and the
  sums are those of the equations in float64.
  """
  group, inner_loop = discovery.group, discovery.group.config.inner_loop
  environment: Any = jax.tree.map(lambda x: x[0], group._environments)

  @jax.jit
  def live(rule_params: types.Params, sign: float, member: Any) -> Any:
    """The agent after a window, its rewards, and the noise in its rule."""
    key, noise_key = jax.random.split(member.acting.key)
    noise = optax.tree.random_like(noise_key, rule_params)
    member, _, _ = inner_loop.run(
      environment,
      jax.tree.map(lambda x, y: x + sign * STD * y, rule_params, noise),
      dataclasses.replace(
        member, acting=dataclasses.replace(member.acting, key=key)
      ),
      UPDATES,
    )
    member, validation = inner_loop.validate(environment, member)
    return member, validation.reward, validation.mask, noise

  @jax.jit
  def agents_of(members: Any) -> list[Any]:
    """The agents of the only member, one by one."""
    alone = persistent_evolution._agents_of(members)
    return [
      inner_loop.fill_replay(
        environment, jax.tree.map(lambda x, i=i: x[0, i], alone)
      )
      for i in range(2 * PAIRS)
    ]

  keys = jax.random.split(jax.random.key(3), 2)
  members = group.init(keys[:1], discovery.rule_params)
  assert isinstance(members, persistent_evolution.Pairs)
  agents, sums, slopes = agents_of(members), np.zeros((PAIRS, 1)), []
  for step in range(4):
    if step == 3:
      members = group.reset_expired(keys[1:], members, np.array([True]))
      agents, sums = agents_of(members), np.zeros((PAIRS, 1))
    rule_params: Any = jax.tree.map(
      lambda x, change=0.1 * step: np.asarray(x) + np.float32(change),
      discovery.rule_params,
    )
    returns, noises = [], []
    for i in range(2 * PAIRS):
      agents[i], reward, mask, noise = live(
        rule_params, 1.0 - 2.0 * (i % 2), agents[i]
      )
      reward, mask = np.asarray(reward, float), np.asarray(mask)
      returns.append(np.sum(reward * mask) / np.sum(mask))
      noises.append(flat(noise))
    sums = sums + np.stack(noises[::2])
    slopes.append(np.subtract(returns[::2], returns[1::2]) / (2 * STD * PAIRS))
    updates, members, logs = group.step(
      sharding.to_devices(rule_params, group.config.mesh, sharding.REPLICATED),
      members,
    )
    np.testing.assert_allclose(
      flat(updates), -slopes[-1] @ sums, rtol=1e-4, atol=1e-5
    )
    for pair in range(PAIRS):
      own = [
        np.asarray(x)[0, pair] for x in jax.tree.leaves(members.perturbations)
      ]
      np.testing.assert_allclose(flat(own), sums[pair], atol=1e-5)
    assert logs['failed'] == 0
  # Otherwise nothing was compared: in the first life, and after its first
  # window.
  assert np.any(slopes[0]) and np.any(slopes[1:3])


def test_pairs_begin_alike_and_differ_from_each_other(
  discovery: Discovery,
) -> None:
  members = discovery.group.init(
    jax.random.split(jax.random.key(0), 1), discovery.rule_params
  )
  for x in jax.tree.leaves(members.learner.params):
    np.testing.assert_array_equal(x[0, 0::2], x[0, 1::2])
  differ = [
    np.any(np.asarray(x[0, 0]) != x[0, 2])
    for x in jax.tree.leaves(members.learner.params)
  ]
  assert any(differ)


def test_all_steps_of_all_agents_are_counted(discovery: Discovery) -> None:
  assert discovery.group.steps == (3 * 12, 2 * PAIRS * 3 * 12)


def test_a_resumed_discovery_is_the_same(
  discovery: Discovery, tmp_path: pathlib.Path
) -> None:
  """Bit for bit, from within lifetimes; each takes two of the meta-steps.

  All steps of all agents are counted, with those before the first updates.
  """
  take = meta_step.MetaStep(
    discovery.config, [discovery.group], sharding.make_mesh()
  )
  state, trees = take.init(discovery.rule_params), []
  steps = np.array([[12], [0], [12], [0]]) + 3 * 12
  directory = tmp_path / 'checkpoints'
  for step in range(1, 5):
    state, _, _ = take(state)
    # The next step is free to overwrite the state.
    trees.append(jax.tree.map(jnp.copy, take.to_tree(state)))
    if step == 3:
      with checkpointing.Checkpointer(directory) as checkpointer:
        checkpointer.save(step, take.to_tree(state))
  size = lambda tree: np.abs(flat(tree['groups'][0].perturbations)).sum()
  counts = np.cumsum(2 * PAIRS * steps, axis=0)
  for tree, count in zip(trees, counts):
    np.testing.assert_array_equal(tree['environment_steps'], [count])
  # They grow within a lifetime, and are forgotten with it.
  assert size(trees[0]) > 0 and size(trees[1]) == 0
  assert size(trees[2]) > 0 and size(trees[3]) == 0
  with checkpointing.Checkpointer(directory) as checkpointer:
    restored = checkpointer.restore(
      take.to_tree(take.init(discovery.rule_params))
    )
  assert restored is not None
  state, _, _ = take(take.restore(*restored))
  jax.tree.map(
    lambda x, y: np.testing.assert_array_equal(
      files.to_data(x), files.to_data(y)
    ),
    take.to_tree(state),
    trees[3],
  )
