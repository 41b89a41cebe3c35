"""Environments whose legal actions change: none is ever taken illegally.

An illegal action ends the episode with -1 on the device, and raises on the
host; a sum of rewards below 0 is therefore one.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

import dm_env
from dm_env import specs
import gymnasium
import jax
import jax.numpy as jnp
import masked
import numpy as np
import pytest

import disco_rl
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import gymnasium_masks
from disco_rl.environments.host import gymnasium_spaces
from disco_rl.runtime import metrics

RULE = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=5.0)
SMALL: dict[str, Any] = {
  'unroll_length': 6,
  'batch_size': 16,
  'num_environments': 8,
  'replay_capacity': 32,
  'on_policy_share': 0.5,
  'hidden_sizes': (8,),
  'learning_rate': 0.01,
}


def make_trainer(environment: Any, **changes: Any) -> disco_rl.Trainer:
  return disco_rl.Trainer(environment, RULE, **{**SMALL, **changes})


def random_observations(size: int) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  mask = rng.random((size, masked.NUM_DOORS)) < 0.3
  mask[np.arange(size), rng.integers(masked.NUM_DOORS, size=size)] = True
  return {'step': np.zeros((size, 1), np.float32), 'action_mask': mask}


def test_on_the_device(tmp_path: pathlib.Path) -> None:
  trainer = make_trainer(masked.Doors())
  curves = trainer.train(20, log_every=1)
  assert np.nanmin(curves['return']) >= 0.0
  observation = random_observations(300)
  for greedy in (False, True):
    action = trainer.act(observation, greedy=greedy)
    assert observation['action_mask'][np.arange(300), action].all()
    episodes = trainer.evaluate(30, greedy=greedy)
    assert (episodes.returns >= 0.0).all()
    assert (episodes.lengths == masked.LENGTH).all()
  assert len(trainer.render(episodes=2)) > 2 * masked.LENGTH
  trainer.policy().save(tmp_path / 'policy.npz')
  loaded = disco_rl.load_policy(
    tmp_path / 'policy.npz', environment=masked.Doors()
  )
  np.testing.assert_array_equal(loaded.act(observation, greedy=True), action)


@pytest.mark.parametrize('core_lstm', [0, 4])
def test_on_the_host(core_lstm: int) -> None:
  trainer = make_trainer(masked.HostDoors, core_lstm=core_lstm)
  trainer.train(6)
  observation = random_observations(50)
  observation['observation'] = observation.pop('step')
  action = trainer.act(observation, is_first=True)
  assert observation['action_mask'][np.arange(50), action].all()
  assert (trainer.evaluate(20, greedy=True).returns >= 0.0).all()
  trainer.close()


@pytest.mark.parametrize('vectorization', ['none', 'async'])
@pytest.mark.parametrize('name', ['HostDoors', 'InfoDoors'])
def test_masks_of_gymnasium(name: str, vectorization: str) -> None:
  environment = registry.make(
    f'gymnasium/{name}-v0',
    2,
    seed=0,
    preprocessing={
      'gymnasium': {
        'vectorization': vectorization,
        'masks_in_info': name == 'InfoDoors',
      }
    },
  )
  assert isinstance(environment, base.HostEnvironment)
  observation = environment.reset()
  assert observation['observation'].shape == (2, 1)
  for _ in range(20):
    action = np.argmax(observation['action_mask'], axis=1)
    timestep = environment.step(action)
    assert (timestep.reward == timestep.mask).all()
    # Also after the end, where the game has no legal action.
    observation = timestep.observation
    assert observation['action_mask'].any(axis=1).all()
  environment.close()


class Forms(gymnasium.Env):
  """Two numbers are an action; its mask has any form."""

  observation_space = gymnasium.spaces.Box(0, 1, (1,))
  action_space = gymnasium.spaces.MultiDiscrete([2, 3])
  mask: Any = None
  info: Any = {}

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    super().reset(seed=seed, options=options)
    return np.zeros(1, np.float32), self.info

  action_masks = property(lambda self: self.mask)


@pytest.mark.parametrize(
  ('mask', 'message'),
  [
    (np.array([1, 0, 0, 1, 1]), ''),
    ([True, False, False, True, True], ''),
    ([0.5, 0.0, 0.0, 2.0, 1.0], ''),
    (lambda: [1, 0, 0, 1, 1], ''),
    (([1, 0], [0, 1, 1]), ''),
    ([np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8)], ''),
    (([0, 1, 1], [1, 0]), 'expected 5 numbers'),
    (
      [1, 0, 1],
      'expected 5 numbers, one for each action, or one mask',
    ),
    (None, 'action_masks is None'),
    ('legal', "action_masks is 'legal'"),
    ({0: 1}, 'action_masks is'),
    (
      [0, -np.inf, -np.inf, 0, 0],
      'action_masks holds -inf: 1 stands for',
    ),
    ([0, -1e9, -1e9, 0, 0], r'action_masks holds -1000000000.0: 1 stands'),
    ([1, np.nan, 0, 1, 1], 'action_masks holds nan'),
  ],
)
def test_forms_of_masks(mask: Any, message: str) -> None:
  env = Forms()
  env.mask = mask
  environment: Any = wrapping.recognize(env).build(1, 0)
  if not message:
    want = [[0, 1, 1, 0, 0, 0]]
    found = environment.reset()['action_mask']
    np.testing.assert_array_equal(found, want)
    return
  with pytest.raises(adapters.HostEnvironmentError, match=message):
    environment.reset()


@pytest.mark.parametrize(
  ('info', 'message'),
  [
    ({'legal': [1, 1]}, "info lacks 'action_mask', .* dict with 'legal'"),
    ({}, "info lacks 'action_mask', .* dict with nothing"),
    ({'action_mask': [1, 1]}, r"info\['action_mask'\] is \[1, 1\], expected 5"),
  ],
)
def test_masks_that_infos_lack(info: Any, message: str) -> None:
  env = Forms()
  env.info = info
  masked_env = gymnasium_masks.add(env, is_in_info=True)
  with pytest.raises(data_checks.SimulatorError, match=message):
    masked_env.reset()


@pytest.mark.parametrize('mask', [[0.0, -np.inf], [0.0, -1e9], [1.0, np.nan]])
def test_masks_to_be_added_to_logits_are_refused(mask: list[float]) -> None:
  observation = {'x': np.zeros((1, 2)), 'action_mask': np.array([mask])}
  spec = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), observation
  )
  with pytest.raises(ValueError, match=r"\['action_mask'\] holds .*: 1 stands"):
    data_checks.checked(observation, spec, np.zeros(1, bool))


def test_masks_in_infos_are_asked_for() -> None:
  environment = registry.make('gymnasium/InfoDoors-v0', 2, seed=0)
  assert not types.has_action_mask(environment.spec.observation)
  with pytest.raises(ValueError, match='masks_in_info=True reads the infos'):
    registry.make(
      'gymnasium/InfoDoors-v0',
      2,
      seed=0,
      preprocessing={
        'gymnasium': {
          'vectorization': 'vector_entry_point',
          'masks_in_info': True,
        }
      },
    )
  with pytest.raises(ValueError, match='only Discrete and MultiDiscrete'):
    registry.make(
      'gymnasium/Pendulum-v1', 1, 0, {'gymnasium': {'masks_in_info': True}}
    )


def test_masks_of_multi_discrete_actions() -> None:
  """The numbers of each, one after the other, as of sb3-contrib."""
  space = gymnasium.spaces.Dict(
    {
      'x': gymnasium.spaces.Box(0, 1, (1,)),
      'action_mask': gymnasium.spaces.MultiBinary(5),
    }
  )
  actions = gymnasium.spaces.MultiDiscrete([2, 3])
  spaces = gymnasium_spaces.make(space, actions, 'Menu')
  x, mask = np.zeros((1, 1), np.float32), np.array([[1, 0, 0, 1, 1]], np.int8)
  encoded = spaces.encode({'x': x, 'action_mask': mask})
  legal = [spaces.decode(a) for a in np.flatnonzero(encoded['action_mask'][0])]
  np.testing.assert_array_equal(legal, [[0, 1], [0, 2]])
  again = spaces.encode(encoded)
  np.testing.assert_array_equal(again['action_mask'], encoded['action_mask'])


class Menu(dm_env.Environment):
  """An environment of dm_env; the action must be the only legal one."""

  def __init__(self, seed: int):
    del seed

  def reset(self) -> dm_env.TimeStep:
    self._step = 0
    return dm_env.restart(self._observe())

  def step(self, action: Any) -> dm_env.TimeStep:
    assert action == self._step
    self._step += 1
    if self._step == 3:
      return dm_env.termination(1.0, self._observe())
    return dm_env.transition(1.0, self._observe())

  def observation_spec(self) -> Mapping[str, Any]:
    return {
      'cell': specs.Array((1,), np.float32),
      'action_mask': specs.BoundedArray((3,), np.int64, 0, 1),
    }

  def action_spec(self) -> specs.DiscreteArray:
    return specs.DiscreteArray(3)

  def _observe(self) -> Mapping[str, np.ndarray]:
    mask = (np.arange(3) == self._step).astype(np.int64)
    return {'cell': np.ones(1, np.float32), 'action_mask': mask}


def test_masks_of_dm_env() -> None:
  trainer = make_trainer(Menu)
  returns = trainer.train(4, log_every=1)['return']
  assert (returns[np.isfinite(returns)] == 3.0).all()
  trainer.close()


def test_dead_ends_on_the_host() -> None:
  environment = wrapping.recognize(masked.DeadEnd).build(2, 0)
  assert isinstance(environment, base.HostEnvironment)
  observation = environment.reset()
  with pytest.raises(
    adapters.HostEnvironmentError,
    match=r"environment 0 of 2 returned an observation\['action_mask'\] in whi",
  ):
    environment.step(np.argmax(observation['action_mask'], axis=1))


def test_dead_ends_on_the_device() -> None:
  trainer = make_trainer(masked.Doors(dead_end=True))
  with pytest.raises(
    metrics.NonFiniteError,
    match='^(?!.*environment_steps).* became .* without a legal action',
  ):
    trainer.train(2)
  with pytest.raises(ValueError, match='has no legal action at index 1 of'):
    observation = random_observations(2)
    observation['action_mask'][1] = False
    trainer.act(observation)


def test_learners_refuse_illegal_actions() -> None:
  environment = masked.Doors()
  network = Network()
  learner = disco_rl.Learner(network, environment.spec, RULE)
  state = learner.init(jax.random.key(0))
  rollout = types.empty_rollout(environment.spec, (), 3, 2)
  mask = np.zeros((4, 2, masked.NUM_DOORS), bool)
  mask[..., 1:] = True
  observation = {**rollout.observation, 'action_mask': mask}
  action = np.ones((4, 2), np.int32)
  fields: dict[str, Any] = {
    'reward': np.ones((3, 2), np.float32),
    'mask': np.ones((3, 2), bool),
  }
  rollout = rollout.__class__(
    **{**vars(rollout), **fields, 'observation': observation, 'action': action}
  )
  # The policy is over the legal actions, whatever the user's network says.
  gradient, *_ = learner.gradient(state, rollout)
  assert gradient['logits'][0] == 0.0
  assert (gradient['logits'][1:] != 0.0).all()
  action[2, 1] = 0
  with pytest.raises(ValueError, match=r'action\[2, 1\] is 0, which is illega'):
    learner.update(state, rollout)


class Network:
  """The same outputs in all states."""

  def init(self, key: types.Array) -> types.Params:
    del key
    return {'logits': jnp.arange(5.0), 'v': jnp.zeros(21)}

  def unroll(self, params: types.Params, rollout: types.Rollout) -> Any:
    outputs = {
      name: jnp.broadcast_to(x, (*rollout.action.shape, *x.shape))
      for name, x in params.items()
    }
    return outputs, outputs
