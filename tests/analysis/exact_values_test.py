"""Regressions on exact values, with answers that are known."""

import dataclasses
import pathlib
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.analysis import exact_values
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import gridworld
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import disco

RIGHT, DISCOUNT = 4, 0.5
RULE = disco.Disco(
  network=small.META_NETWORK, num_bins=41, max_abs_value=2.0, discount=DISCOUNT
)
# A corridor of three cells and an object at its end, which ends the episode.
WORLD = gridworld.build(
  '..a',
  [gridworld.Kind(1.0, 1.0, 0.0)],
  9,
  size=(1, 3),
  num_slots=1,
  num_kinds=1,
  is_tabular=True,
)


class Corridor:
  """An agent that always goes right, whose y says which cell it is in."""

  def __init__(self) -> None:
    config = mock.Mock()
    config.network.core_lstm = 0
    network = mock.Mock(
      step=lambda _, seen, core: (self.logits(seen), core),
      initial_state=lambda _: (),
      init=lambda _: {},
      unroll=lambda _, rollout: (self.outputs(rollout, 0.0), None),
    )
    agent: Any = mock.Mock(config=config, network=network)
    learner: Any = mock.Mock(params={})
    settings: Any = mock.Mock()
    self.subject = recording.Subject(settings, RULE, {}, agent, learner)
    object.__setattr__(self.subject, 'environments', lambda _: WORLD)

  def logits(self, seen: types.Array) -> types.Array:
    return jnp.zeros((*seen.shape[:-1], 5)).at[..., RIGHT].set(50.0)

  def outputs(self, rollout: types.Rollout, scale: float) -> types.Outputs:
    cell = scale * rollout.observation[..., :3]
    shape = cell.shape[:2]
    bins = jnp.linspace(-2.0, 2.0, 41)
    # By action: 0, except for right, whose value is exact in each cell.
    values = (
      jnp.zeros((*shape, 5))
      .at[..., RIGHT]
      .set(scale * rollout.observation[..., :3] @ jnp.array([0.5, 1.0, 0.0]))
    )
    transformed = value_targets.TRANSFORM.apply(values)[..., None]
    return {
      'logits': self.logits(rollout.observation),
      'y': cell,
      'z': jnp.zeros((*shape, 5, 3)),
      'q': -30.0 * (bins - transformed) ** 2,
    }


def corridor_scene() -> tuple[recording.Subject, scenes.Scene]:
  """Eight episodes, with all actions in the first two cells."""
  agent = Corridor()
  time = 40
  cells = jnp.arange(time + 1)[:, None] % 2
  observation = jnp.concatenate(
    [jax.nn.one_hot(cells, 3), jnp.ones((time + 1, 1, 1))], axis=-1
  )
  action = (jnp.arange(time + 1)[:, None] // 2) % 5
  rollout = types.Rollout(
    observation=observation,
    action=action,
    logits=jnp.zeros((time + 1, 1, 5)),
    reward=jnp.zeros((time, 1)),
    is_terminal=jnp.zeros((time, 1), bool),
    mask=jnp.ones((time, 1), bool).at[4].set(False),
  )
  return agent.subject, scenes.Scene(
    rollout, agent.outputs(rollout, 1.0), mock.Mock()
  )


def test_exact_values_are_those_of_the_states(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """V is 0.5 in the first cell, 1 in the second."""
  asked: list[tuple[np.ndarray, ...]] = []

  def score(*question: np.ndarray) -> int:
    asked.append(question)
    return len(asked)

  monkeypatch.setattr(exact_values, 'r_squared', score)
  subject, scene = corridor_scene()
  found = exact_values.measure(subject, scene)
  assert found is not None
  names = ['q', 'y', 'z', 'untrained q', 'untrained y', 'untrained z']
  assert found == dict(zip(names, range(1, 7)))
  steps = np.delete(np.arange(40), 4)  # It is masked.
  value = np.array([0.5, 1.0])[steps % 2]
  for x, y, fold in asked:
    assert len(x) == 39
    np.testing.assert_allclose(y, value, atol=1e-4)
    # Steps of a state are in one fold.
    assert len({*zip(steps % 2, fold)}) == 2
  q, y, z, *_ = (x for x, *_ in asked)
  np.testing.assert_allclose(q[:, RIGHT], value, atol=0.01)
  np.testing.assert_allclose(q[:, :RIGHT], 0.0, atol=0.01)
  np.testing.assert_allclose(q[:, 5], value, atol=0.01)
  assert y.argmax(axis=1).tolist() == (steps % 2).tolist()
  assert z.shape == (39, 3)


@pytest.mark.parametrize('noise', [0.0, 1.0])
def test_what_a_regression_explains(noise: float) -> None:
  """Half of the variance, with as much noise as signal."""
  draw = np.random.default_rng(0)
  x, fold = draw.normal(size=(4000, 3)), draw.integers(5, size=4000)
  y = x @ [0.6, 0.0, 0.8] + noise * draw.normal(size=4000) + 7.0
  found = exact_values.r_squared(100.0 * x - 3.0, y, fold)
  assert found == pytest.approx(1 / (1 + noise), abs=0.03 * noise + 1e-4)
  other = exact_values.r_squared(draw.normal(size=(4000, 3)), y, fold)
  assert abs(other) < 0.01
  assert np.isnan(exact_values.r_squared(x, 0.0 * y, fold))


def test_rows_of_a_fold_are_held_out() -> None:
  """One feature for each row: nothing is known of the others."""
  y = np.arange(20.0)
  fold = np.arange(20) % 5
  assert exact_values.r_squared(np.eye(20), y, fold) < 0.01
  # If rows recur in all folds, everything is.
  x, y = np.tile(np.eye(20), (5, 1)), np.tile(y, 5)
  assert exact_values.r_squared(x, y, np.repeat(np.arange(5), 20)) > 0.99


def test_only_grid_worlds_with_known_states() -> None:
  subject, scene = corridor_scene()
  subject.agent.config.network.core_lstm = 4
  assert exact_values.measure(subject, scene) is None
  subject, scene = corridor_scene()
  for other in (
    dataclasses.replace(WORLD, is_tabular=False),
    catch.Catch(rows=4, columns=3),
  ):
    object.__setattr__(subject, 'environments', lambda _, x=other: x)
    assert exact_values.measure(subject, scene) is None


def test_environments_on_the_host_are_closed() -> None:
  subject, scene = corridor_scene()
  world = mock.create_autospec(base.HostEnvironment, instance=True)
  object.__setattr__(subject, 'environments', lambda _: world)
  assert exact_values.measure(subject, scene) is None
  world.close.assert_called_once_with()


def test_the_policy_is_that_of_an_agent_in_its_states() -> None:
  """Among the states that observations of the world can have."""
  agent = agent_lib.make(
    agent_lib.AgentConfig(
      network=agent_network.AgentNetworkConfig(
        torso=torsos.TorsoConfig(hidden_sizes=(8,)),
        action_model_lstm=6,
        action_model_head=7,
      )
    ),
    WORLD.spec,
    RULE,
  )
  params = jax.jit(agent.network.init)(jax.random.key(0))
  params = jax.tree.map(lambda x: 3 * x + 0.1, params)
  policy = exact_values.of_all_states(agent, params, WORLD)
  assert policy.shape == (3, 2, 5)
  state, observation = WORLD.reset(jax.random.key(1))
  _, timestep = WORLD.step(state, RIGHT, jax.random.key(2))
  for seen in (observation, timestep.observation):
    cell, present = int(seen[:3].argmax()), int(seen[3])
    logits, _ = agent.network.step(params, seen[None], ())
    np.testing.assert_allclose(
      policy[cell, present], jax.nn.softmax(logits[0]), atol=1e-6
    )
  assert np.ptp(policy, axis=(0, 1)).max() > 1e-3


def test_a_table_of_agents(tmp_path: pathlib.Path) -> None:
  scores = {'q': 0.5, 'y': 0.25}
  exact_values.write(tmp_path / 'values.csv', {3: scores, 4: scores})
  assert (tmp_path / 'values.csv').read_text() == (
    'seed,prediction,r_squared\n3,q,0.5\n3,y,0.25\n4,q,0.5\n4,y,0.25\n'
  )
