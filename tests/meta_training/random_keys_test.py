"""No random key is used twice, whichever part of the package uses it.

Every use of a key is recorded while programs run: what is drawn from it, into
how many keys it is split, what is folded into it. Only folding may be repeated,
with other numbers.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import pathlib
from typing import Any

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import small_runs
import disco_rl
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.environments import base
from disco_rl.environments.jax_native import catch
from disco_rl.meta_training import build
from disco_rl.meta_training import evolution
from disco_rl.meta_training import host_group
from disco_rl.meta_training import initial_rule
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.training import parallel
from disco_rl.update_rules import actor_critic

# Two environments for each agent, four rollouts in each meta-step.
UPDATES, VALIDATION_ROLLOUTS, UNROLL_LENGTH, ENVIRONMENTS = 2, 2, 3, 2
ROLLOUTS = UPDATES + VALIDATION_ROLLOUTS
TINY: dict[str, Any] = {
  'environments': 'catch/4x3,gridworld/00',
  'agents': 4,
  'meta_steps': 3,
  'budgets': (1,),  # Every agent is reset after every meta-step.
  'inner_updates': UPDATES,
  'validation_trajectories': VALIDATION_ROLLOUTS * ENVIRONMENTS,
  'unroll_length': UNROLL_LENGTH,
  'meta_value_on_inner_batches': False,
  **small_runs.SMALL_RULE,
}
SAMPLERS = (
  'bernoulli',
  'bits',
  'categorical',
  'choice',
  'exponential',
  'gumbel',
  'normal',
  'permutation',
  'rademacher',
  'randint',
  'truncated_normal',
  'uniform',
)


@dataclasses.dataclass(frozen=True)
class Recorder:
  """Uses of keys, by their data.

  Attributes:
    uses: Key -> the operations that it was used for, in no particular order.
  """

  uses: dict[tuple[int, ...], list[str]] = dataclasses.field(
    default_factory=lambda: collections.defaultdict(list)
  )

  def wrap(self, name: str, function: Callable[..., Any]) -> Any:
    """The function of jax.random, whose calls are recorded."""

    def wrapped(key: types.Array, *args: Any, **kwargs: Any) -> Any:
      folded = jnp.uint32(args[0] if name == 'fold_in' else 0)
      jax.debug.callback(
        lambda data, folded: self._record(name, data, folded),
        jax.random.key_data(key),
        folded,
      )
      return function(key, *args, **kwargs)

    return wrapped

  def _record(self, name: str, data: Any, folded: Any) -> None:
    rows = np.asarray(data).reshape(-1, data.shape[-1]).tolist()
    use = f'fold_in {int(folded)}' if name == 'fold_in' else name
    for row in rows:
      self.uses[tuple(row)].append(use)

  def count(self, name: str) -> int:
    """How often a function was called."""
    return sum(uses.count(name) for uses in self.uses.values())

  def reused(self) -> list[list[str]]:
    """Uses of the keys that were used more than once."""
    jax.effects_barrier()
    return [uses for uses in self.uses.values() if not _is_proper(uses)]


def _is_proper(uses: list[str]) -> bool:
  """Used once; or only to fold in numbers, which yields a key for each."""
  return len(uses) == 1 or all(use.startswith('fold_in') for use in uses)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
  """Programs are traced anew with it, and forgotten afterwards."""
  recorder = Recorder()
  for name in (*SAMPLERS, 'split', 'fold_in'):
    wrapped = recorder.wrap(name, getattr(jax.random, name))
    monkeypatch.setattr(jax.random, name, wrapped)
  jax.clear_caches()
  yield recorder
  jax.clear_caches()


def keys(seed: int, num: int) -> types.Array:
  """Keys that no program splits off from others."""
  return jax.vmap(jax.random.key)(1000 * seed + np.arange(num))


@pytest.fixture
def no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
  """Without them, which need no keys, programs compile in a tenth of the time.

  Agents then keep their parameters, and the initial rule is one everywhere.
  """

  def learn(
    self: agent_lib.Agent, rule_params: types.Params, state: Any, batch: Any
  ) -> tuple[Any, learner.Update]:
    del self, rule_params
    gradient = jax.tree.map(jnp.zeros_like, state.params)
    logs = {'loss': jnp.mean(batch.reward)}
    return state, learner.Update(targets=None, gradient=gradient, logs=logs)

  def draw(
    key: types.Array, config: meta_network.MetaNetworkConfig
  ) -> types.Params:
    shapes = jax.eval_shape(lambda: meta_network.init(key, config))
    jax.random.uniform(key)
    return jax.tree.map(jnp.ones_like, shapes)

  monkeypatch.setattr(initial_rule, 'draw', draw)
  monkeypatch.setattr(agent_lib.Agent, 'learn', learn)
  monkeypatch.setattr(meta_gradient, 'MetaGradient', discovering.MeanReward)


def config_with(**changes: Any) -> Any:
  return discovering.config_of(**{**TINY, **changes})


def test_the_recorder_sees_keys_within_programs(recorder: Recorder) -> None:
  """One key is used by a split and a draw, another twice by the same draw."""

  @jax.jit
  def program(key: types.Array, other: types.Array) -> types.Array:
    children = jax.random.split(key)
    draw = jax.vmap(lambda key: jax.random.normal(key))
    draw(jnp.stack([*children, other]))
    jax.lax.scan(
      lambda carry, _: (carry, jax.random.gumbel(other)), 0, length=2
    )
    jax.random.fold_in(children[0], 3)
    return jax.random.normal(key)

  program(jax.random.key(0), jax.random.key(1))
  assert sorted(map(sorted, recorder.reused())) == [
    ['fold_in 3', 'normal'],
    ['gumbel', 'gumbel', 'normal'],
    ['normal', 'split'],
  ]


@pytest.mark.slow
@pytest.mark.usefixtures('no_gradients')
def test_discovery(recorder: Recorder, tmp_path: pathlib.Path) -> None:
  """Two groups of two agents, each reset after each of three meta-steps."""
  config = config_with()
  summary = meta_trainer.MetaTrainer(config).run(tmp_path, {})
  assert summary['meta_steps'] == 3
  assert recorder.reused() == []
  # The agents' policies, and the steps of two grid worlds: a step and a reset.
  assert recorder.count('gumbel') == 4 * 3 * ROLLOUTS
  steps = 3 * ROLLOUTS * UNROLL_LENGTH * ENVIRONMENTS
  resets = (1 + 3) * ENVIRONMENTS
  assert recorder.count('bits') == 2 * (2 * steps + resets)
  # One for each matrix of four agents initialized four times, and the rule.
  assert recorder.count('truncated_normal') > 4 * (1 + 3)


@pytest.mark.slow
@pytest.mark.usefixtures('no_gradients')
def test_a_group_on_the_host(recorder: Recorder) -> None:
  """Two agents take two steps; both are reset between these."""
  config = config_with(environments='catch/2x1', agents=2)
  rule, rule_params = build.make_rule(config)
  group_config = discovering.group_config(
    config, rule, discovering.counting_spec()
  )
  group = host_group.HostGroup(
    group_config,
    lambda _: [discovering.Counting(i) for i in range(2)],
    discovering.MeanReward(group_config.inner_loop),
  )
  members = group.init(keys(1, 2), rule_params)
  for step in range(2):
    _, members, _ = group.step(rule_params, members)
    if step == 0:
      members = group.reset_expired(keys(2, 2), members, np.array([True, True]))
  assert recorder.reused() == []
  assert recorder.count('gumbel') == 2 * 2 * ROLLOUTS
  assert recorder.count('randint') >= 2 * 2 * UPDATES


@pytest.mark.usefixtures('no_gradients')
@pytest.mark.parametrize('is_on_host', [False, True])
def test_agents_that_learn_with_a_fixed_rule(
  recorder: Recorder, is_on_host: bool
) -> None:
  """Two agents make three updates, in two calls."""
  environment: Any = catch.Catch(2, 1)
  if is_on_host:
    environment = discovering.Counting(0, num_environments=2 * ENVIRONMENTS)
  rule = actor_critic.ActorCritic(num_bins=5)
  agent = agent_lib.make(
    agent_lib.AgentConfig(
      network=agent_network.AgentNetworkConfig(
        torsos.TorsoConfig(hidden_sizes=(4,))
      ),
      unroll_length=UNROLL_LENGTH,
      batch_size=4,
      num_environments=2,
      on_policy_share=0.5,
      replay_capacity=8,
    ),
    environment.spec,
    rule,
  )
  training = parallel.make(agent, environment, 2)
  state = training.init(keys(1, 2))
  for num_updates in (1, 2):
    state, _ = training.advance({}, state, num_updates)
  assert recorder.reused() == []
  assert recorder.count('gumbel') == 2 * 3
  steps = 0 if is_on_host else UNROLL_LENGTH * 3 + 1
  assert recorder.count('randint') == 2 * (3 + ENVIRONMENTS * steps)


@types.record
class Noisy(base.JaxEnvironment):
  """Observes noise, which is drawn anew in every reset and step."""

  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((), jnp.float32), 2)

  def reset(self, key: types.Array) -> tuple[types.Array, types.Array]:
    noise = jax.random.uniform(key)
    return noise, noise

  def step(
    self, state: types.Array, action: types.Array, key: types.Array
  ) -> tuple[types.Array, types.TimeStep]:
    del state, action
    noise = jax.random.uniform(key)
    is_last = noise < 2
    return noise, types.TimeStep(noise, noise, is_last, is_last, is_last)


def test_the_start_of_an_episode_is_not_drawn_from_the_noise_of_the_last_step(
  recorder: Recorder,
) -> None:
  state, observation = Noisy().reset(jax.random.key(0))
  state, timestep = jax.jit(Noisy().step_autoreset)(
    state, jnp.int32(0), jax.random.key(1)
  )
  assert timestep.reward != timestep.observation != observation
  assert recorder.reused() == []
  assert recorder.count('uniform') == 3


@pytest.mark.usefixtures('no_gradients')
def test_an_agent_of_the_api(recorder: Recorder) -> None:
  """It learns, acts and plays; played episodes have another seed."""
  trainer = disco_rl.Trainer(
    catch.Catch(2, 1),
    disco_rl.load_rule('actor_critic', num_bins=5),
    seed=3,
    unroll_length=UNROLL_LENGTH,
    batch_size=2,
    num_environments=2,
    hidden_sizes=(4,),
  )
  trainer.train(2, 1, show_progress=False)
  observation = np.zeros((2, 1))
  for _ in range(2):
    trainer.act(observation)
  trainer.evaluate(2, seed=5)
  assert recorder.reused() == []
  # Two rollouts; two calls, and one step of both episodes.
  assert recorder.count('gumbel') == 2
  assert recorder.count('categorical') == 2 + 1


def test_perturbations_of_evolution_strategies(recorder: Recorder) -> None:
  """The 2 * 3 trials of a step share keys; perturbations have their own."""
  rule_params = {'a': jnp.zeros(2), 'b': jnp.zeros(())}
  stub: Any = discovering.StubProblem(lambda rule: rule['b'], noise=1.0)
  strategies = evolution.EvolutionStrategies(
    stub, evolution.Evolution(pairs=3, std=0.1)
  )
  member = discovering.stub_member(rule_params, 0)
  step = jax.jit(lambda member: strategies(rule_params, member, None))
  for _ in range(2):
    _, member, _ = step(member)
  # In each step, what the six trials live by, and are validated by.
  reused = recorder.reused()
  assert sorted(reused) == 2 * [6 * ['normal']] + 2 * [6 * ['split']]
  # Three perturbations of two leaves, which life that goes on does not share.
  once = [uses for uses in recorder.uses.values() if len(uses) == 1]
  assert sorted(once) == 2 * (3 + 2 + 1) * [['split']]
