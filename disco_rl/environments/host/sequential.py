"""Several simulators of one environment each, as one host environment."""

from collections.abc import Sequence
from typing import Protocol
import warnings

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks


class Simulator(Protocol):
  """One environment of a package; optional methods can be inherited.

  The simulator may overwrite an observation later, and its types only need to
  be convertible to those of the spec.
  """

  def reset(self) -> types.PyTree:
    """Begins an episode; returns its first observation."""

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    """Takes one action; not called after the end of an episode.

    Args:
      action: The action, from 0 to A - 1.

    Returns:
      The observation, the reward, whether the episode was terminated, and
      whether it was truncated.
    """

  def close(self) -> None:
    """Frees the resources of the simulator."""

  def skip_to(self, episode: int) -> None:
    """Makes the next reset of a simulator begin its n-th episode, from 0.

    Only for simulators whose episodes are determined by their seed, number and
    actions, see `SequentialEnvironment`.
    """
    raise TypeError(f'{type(self).__name__} cannot skip to {episode}.')

  def render(self) -> np.ndarray:
    """Draws the environment; see `HostEnvironment.render`."""
    raise base.RenderError('There are no pictures of this environment.')

  def screen(self) -> str:
    """Returns the environment as text; see `HostEnvironment.screen`."""
    return ''


class SequentialEnvironment(adapters.Adapter):
  """Simulators that step sequentially, and reset in the next step."""

  def __init__(
    self,
    simulators: Sequence[Simulator],
    spec: types.EnvironmentSpec,
    name: str,
    seed: int,
    raw: types.PyTree = None,
    longest: int | None = None,
  ):
    """Wraps simulators.

    Args:
      simulators: The B simulators, which only this object uses from now on.
      spec: The spec of each environment. Observations of simulators are
        converted to its dictionaries and tuples.
      name: The name for messages.
      seed: The seed of the batch, for messages.
      raw: The spec of observations before `encode`; None: that of `spec`.
      longest: The maximal number of steps of an episode, if simulators have
        `skip_to`. Then their states are the numbers of their episodes and the
        actions taken in these, which are repeated when they are restored. None:
        they cannot be saved.
    """
    super().__init__(name, seed, spec, len(simulators))
    self._simulators = simulators
    self._standstill = data_checks.StandstillCheck()
    self._raw = spec.observation if raw is None else raw
    number = len(simulators)
    self._episodes = np.full(number, -1, np.int32)
    self._taken = np.zeros(number, np.int32)
    shape = None if longest is None else (number, longest)
    self._past = None if shape is None else np.zeros(shape, np.int16)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    for simulator in self._simulators:
      with adapters.closing(self._name):
        simulator.close()

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._simulators[0].render()

  def screen(self) -> str:
    """Implements `HostEnvironment.screen`."""
    return self._simulators[0].screen()

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`."""
    if self._past is None:
      return None
    return {
      'episodes': self._episodes.copy(),
      'taken': self._taken.copy(),
      'past': self._past.copy(),
      'is_resetting': self._is_resetting.copy(),
    }

  def restore_state(self, state: types.PyTree) -> None:
    """Begins the same episodes, and takes their actions again."""
    state = {name: np.array(x) for name, x in state.items()}
    names = ('episodes', 'taken', 'past', 'is_resetting')
    for simulator, episode, taken, past, is_resetting in zip(
      self._simulators, *(state[name] for name in names), strict=True
    ):
      simulator.skip_to(int(episode))
      simulator.reset()
      # An episode that has ended is not needed, and would be counted again.
      for action in [] if is_resetting else past[:taken].tolist():
        simulator.step(action)
    self._episodes, self._taken = state['episodes'], state['taken']
    self._past, self._is_resetting = state['past'], state['is_resetting']

  def _reset(self) -> types.PyTree:
    number = self.num_environments
    return self._play(np.zeros(number, np.int32), np.ones(number, bool))[0]

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    return self._play(action, self._is_resetting)

  def _play(
    self, action: np.ndarray, is_resetting: np.ndarray
  ) -> tuple[types.PyTree, ...]:
    """Steps or resets each simulator; returns the results of `_step`."""
    number = self.num_environments
    # Copies, because simulators may overwrite their observations.
    stacked = jax.tree.map(
      lambda x: np.empty((number, *x.shape), x.dtype), self._raw
    )
    outcomes = []

    def copy(stack: np.ndarray, value: types.PyTree, path: str) -> None:
      # Most need no checks, and each step of each simulator comes by here.
      if (
        type(value) is np.ndarray
        and value.dtype == stack.dtype
        and value.shape == stack.shape[1:]
      ):
        stack[i] = value
      else:
        _copy(i, self._standstill, stack, value, path)

    for i, (simulator, a, is_first) in enumerate(
      zip(self._simulators, action.tolist(), is_resetting.tolist())
    ):
      try:
        outcome = (
          (simulator.reset(), 0.0, False, False)
          if is_first
          else simulator.step(a)
        )
        data_checks.select(stacked, outcome[0], copy)
      except Exception as error:
        is_located = isinstance(error, data_checks.SimulatorError)
        raise data_checks.SimulatorError(
          f'environment {i} of {number}: {error if is_located else repr(error)}'
        ) from error
      outcomes.append(outcome[1:])
    self._count(action, is_resetting)
    return self.encode(stacked), *zip(*outcomes)

  def _count(self, action: np.ndarray, is_resetting: np.ndarray) -> None:
    """Keeps what simulators have done, so that they can be restored."""
    self._episodes += is_resetting
    if self._past is not None:
      (acting,) = np.nonzero(~is_resetting)
      self._past[acting, self._taken[acting]] = action[acting]
      self._taken += 1
    self._taken[is_resetting] = 0


def _copy(
  i: int,
  standstill: data_checks.StandstillCheck,
  stack: np.ndarray,
  value: types.PyTree,
  path: str,
) -> None:
  """Copies an entry of the i-th observation into the stack of all, [B, ...]."""
  if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
    warnings.warn(
      f'{path} is a masked array: agents see what lies under its mask. Let the '
      'environment fill it with a number, by `filled`.',
      stacklevel=2,
    )
  array, dtype = np.asarray(value), stack.dtype
  is_exact = array.dtype == dtype
  # Assignment would broadcast and round.
  if array.shape != stack.shape[1:] or not (
    is_exact or np.can_cast(array.dtype, dtype, 'same_kind')
  ):
    raise data_checks.SimulatorError(
      f'{path} is {array.dtype}{list(array.shape)}, expected '
      f'{dtype}{list(stack.shape[1:])}, as in the spec'
    )
  stack[i] = array if is_exact else data_checks.narrowed(array, dtype)
  if array.dtype.kind == 'f' and array.dtype.itemsize > dtype.itemsize:
    standstill.check((i, path), array, stack[i], path)
