"""A trainer keeps its agent when an environment raises, and at Ctrl-C."""

from collections.abc import Callable
import pathlib
import signal
from typing import Any

import dm_env
from dm_env import specs
import numpy as np
import pytest

import disco_rl
from disco_rl.environments.host import adapters

pytestmark = pytest.mark.usefixtures('foreground')

# Rollouts of one update.
STEPS = 4


class Breaking(dm_env.Environment):
  """Episodes of two steps, and of random numbers; does something at a step."""

  steps_left = 1_000_000
  fault: Callable[[], Any] = lambda: None

  def __init__(self, seed: int):
    del seed
    self._rng = np.random.default_rng(0)
    self._count = 0

  def reset(self) -> dm_env.TimeStep:
    # Episodes after a reset are the same again.
    self._rng, self._count = np.random.default_rng(0), 0
    return dm_env.restart(self._observe())

  def step(self, action: Any) -> dm_env.TimeStep:
    self._count += 1
    reward = float(action)
    Breaking.steps_left -= 1
    if not Breaking.steps_left:
      reward = Breaking.fault() or reward
    if self._count == 2:
      return dm_env.termination(reward, self._observe())
    return dm_env.transition(reward, self._observe())

  def observation_spec(self) -> Any:
    return specs.Array((2,), np.float32)

  def action_spec(self) -> Any:
    return specs.DiscreteArray(2)

  def _observe(self) -> np.ndarray:
    return self._rng.random(2).astype(np.float32)


def fail() -> None:
  raise OSError('no such thing')


@pytest.fixture(scope='module')
def trainer() -> disco_rl.Trainer:
  rule = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=3.0)
  trainer = disco_rl.Trainer(
    Breaking,
    rule,
    unroll_length=STEPS,
    batch_size=4,
    num_environments=1,
    replay_capacity=16,
    hidden_sizes=(8,),
    learning_rate=1e-2,
  )
  trainer.train(1)
  return trainer


def break_at(rollout: int, fault: Callable[[], Any]) -> None:
  """In the last step of the i-th rollout, of which every third step resets."""
  Breaking.steps_left = sum((i + 1) % 3 != 0 for i in range(STEPS * rollout))
  Breaking.fault = staticmethod(fault)


def contents(path: pathlib.Path) -> dict[str, np.ndarray]:
  with np.load(path) as archive:
    return dict(archive)


@pytest.mark.parametrize(
  ('fault', 'error', 'complete'),
  [
    (fail, adapters.HostEnvironmentError, 2),
    # A reward that would spoil replay and all that is learned from it.
    (lambda: np.nan, adapters.HostEnvironmentError, 2),
    # The rollout is finished, and learned from.
    (lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt, 3),
  ],
)
def test_the_agent_is_that_of_the_last_complete_update(
  trainer: disco_rl.Trainer,
  fault: Callable[[], Any],
  error: type[BaseException],
  complete: int,
  tmp_path: pathlib.Path,
) -> None:
  before, after = tmp_path / 'before.npz', tmp_path / 'after.npz'
  trainer.save(before)
  updates = trainer.updates
  trainer.load(before)  # Resets environments.
  entries: list[dict[str, Any]] = []

  break_at(3, fault)
  with pytest.raises(error):
    trainer.train(6, 1000, save_to=after, callback=entries.append)
  assert trainer.updates == updates + complete
  assert [entry['update'] for entry in entries] == [updates + complete]
  interrupted = contents(after)

  trainer.load(before)
  trainer.train(complete, 1000, save_to=after)
  for name, array in contents(after).items():
    np.testing.assert_array_equal(interrupted[name], array, name)
  assert all(
    np.isfinite(x).all() for x in interrupted.values() if x.dtype.kind == 'f'
  )


def test_training_goes_on_after_an_error(trainer: disco_rl.Trainer) -> None:
  updates = trainer.updates
  break_at(1, fail)
  with pytest.raises(adapters.HostEnvironmentError, match='no such thing'):
    trainer.train(1)
  assert trainer.updates == updates
  assert trainer.act(np.zeros(2)) in (0, 1)
  assert np.isfinite(trainer.train(2)['loss']).all()
  assert trainer.updates == updates + 2
