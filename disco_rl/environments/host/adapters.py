"""Adapters of host environments with checked data, their seeds and errors."""

import abc
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import signal
import threading
from typing import Annotated
import warnings

import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import wrapper

# The height or width of pictures; smaller ones would be read as boards.
PictureSide = Annotated[int, config_lib.at_least(types.PICTURE_SIDE)]
# Fields of a time step -> their types.
_FIELDS = {
  'reward': np.float32,
  'is_terminal': np.bool_,
  'is_last': np.bool_,
  'mask': np.bool_,
}


class HostEnvironmentError(RuntimeError):
  """Raised if an environment fails; the message has its name, seed and step."""


class Adapter(base.HostEnvironment):
  """A batch of environments, with checked data and masked resets.

  An environment resets in one of two modes:
    next step: the step after the last one of an episode ignores its action and
      returns the first observation of the next episode. This transition has
      mask False, reward 0 and is_terminal True, so that no value is
      bootstrapped across episodes. A truncated episode is not terminal: the
      last observation is returned, and may be bootstrapped from.
    same step: the last step returns the first observation of the next episode,
      not its own last observation. It is masked if the episode was truncated;
      see `base.mark_time_limit`.

  A subclass implements `_reset`, `_step` and `close`.
  """

  def __init__(
    self,
    name: str,
    seed: int,
    spec: types.EnvironmentSpec,
    num_environments: int,
    resets_in_next_step: bool = True,
  ):
    """Initializes the bookkeeping.

    Args:
      name: The name for messages.
      seed: The seed of the batch, for messages.
      spec: The spec of one environment.
      num_environments: B.
      resets_in_next_step: Whether environments reset in the next step, not in
        the same step.
    """
    self.spec = spec
    self.num_environments = num_environments
    self._name = name
    self._seed = seed
    self._num_steps = 0
    self._resets_in_next_step = resets_in_next_step
    self._is_resetting = np.zeros(num_environments, bool)

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`.

    Raises:
      HostEnvironmentError: An environment raised, or an observation does not
        fit the spec, is not finite or has no legal action.
    """
    self._is_resetting = np.zeros(self.num_environments, bool)
    with located_errors(self._name, self._seed, self._num_steps):
      return data_checks.checked(
        self._reset(), self.spec.observation, self._is_resetting
      )

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`.

    Raises:
      HostEnvironmentError: An environment raised, an action is out of range, an
        observation does not fit the spec or has no legal action, or a number is
        not finite.
    """
    self._num_steps += 1
    with located_errors(self._name, self._seed, self._num_steps):
      observation, *outcome = self._step(
        in_range(action, self.spec.num_actions)
      )
      reward, is_terminated, is_truncated = (
        data_checks.numbers(what, values, self.num_environments)
        for what, values in zip(('reward', 'terminated', 'truncated'), outcome)
      )
      is_last = np.logical_or(is_terminated, is_truncated)
      observation = data_checks.checked(
        observation,
        self.spec.observation,
        is_last & self._resets_in_next_step,
      )
    is_dummy = self._is_resetting
    fields: dict[str, types.PyTree] = {
      # Wrappers that shift rewards also reward the step that resets.
      'reward': np.where(is_dummy, 0.0, reward).astype(np.float32),
      'is_terminal': np.logical_or(is_terminated, is_dummy),
      'is_last': is_last,
      'mask': ~is_dummy,
    }
    timestep = types.TimeStep(observation=observation, **fields)
    if not self._resets_in_next_step:
      return base.mark_time_limit(timestep, observation)
    self._is_resetting = is_last
    return timestep

  @abc.abstractmethod
  def _reset(self) -> types.PyTree:
    """Begins an episode in every environment; returns observations [B, ...]."""

  @abc.abstractmethod
  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    """Takes one action in every environment; resets according to the mode.

    Args:
      action: [B] int32, from 0 to A - 1.

    Returns:
      Observations [B, ...], which are not overwritten later; rewards, whether
      episodes were terminated, and whether they were truncated, [B] each.
    """


class CheckedEnvironment(wrapper.Wrapper):
  """Checks all that a user's environment returns, as `Adapter` does.

  Resets and steps raise `HostEnvironmentError` for all faults.
  """

  def __init__(self, environment: base.HostEnvironment, seed: int):
    """Wraps an environment; the seed is for messages."""
    super().__init__(environment)
    self._name = type(environment).__name__
    self._seed = seed
    self._num_steps = 0

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`, and checks the observations."""
    with located_errors(self._name, self._seed, self._num_steps):
      return data_checks.checked(
        self._environment.reset(),
        self.spec.observation,
        np.zeros(self.num_environments, bool),
      )

  def start(self, action: np.ndarray) -> None:
    """Implements `HostEnvironment.start`."""
    self._num_steps += 1
    self._environment.start(action)

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`, and checks the outcomes."""
    with located_errors(self._name, self._seed, self._num_steps):
      timestep = self._environment.finish()
      fields: dict[str, types.PyTree] = {
        name: data_checks.numbers(
          name, getattr(timestep, name), self.num_environments
        ).astype(dtype)
        for name, dtype in _FIELDS.items()
      }
      fields['observation'] = data_checks.checked(
        timestep.observation, self.spec.observation, fields['is_last']
      )
    return dataclasses.replace(timestep, **fields)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    with closing(self._name):
      self._environment.close()


def sub_seeds(seed: int, num_environments: int) -> np.ndarray:
  """Draws the seeds of the environments of a batch.

  With `seed + i` for the i-th one, batches of adjacent seeds would differ in
  only one environment.

  Args:
    seed: The seed of the batch, at least 0.
    num_environments: B; a larger batch begins with the seeds of a smaller one.

  Returns:
    [B] int32, at least 0, because simulators in C do not take more bits.
  """
  words = np.random.SeedSequence(seed).generate_state(num_environments)
  return (words >> 1).astype(np.int32)


def seed_after(seed: int, steps: int) -> int:
  """Draws the seed of new episodes of a batch after a run was resumed.

  Args:
    seed: The seed of the batch when the run began.
    steps: The number of updates or meta-steps after which the run resumes.
  """
  return int(np.random.SeedSequence([seed, steps]).generate_state(1)[0] >> 1)


def in_range(action: np.ndarray, num_actions: int) -> np.ndarray:
  """Returns actions [B] as int32; raises ValueError for those out of range.

  Some simulators hang with a wrong action.
  """
  action = np.asarray(action, np.int32)
  if np.any((action < 0) | (action >= num_actions)):
    raise ValueError(f'actions must be 0 .. {num_actions - 1}, got {action}')
  return action


@contextlib.contextmanager
def located_errors(name: str, seed: int, step: int) -> Iterator[None]:
  """Adds the name, seed and step of a batch of environments to its errors.

  Raises:
    HostEnvironmentError: The body raised any exception or called sys.exit.
    KeyboardInterrupt: The user interrupted.
  """
  try:
    yield
  except BaseException as error:
    if isinstance(error, KeyboardInterrupt) and _may_be_interrupted():
      raise
    is_named = isinstance(error, data_checks.SimulatorError)
    raise HostEnvironmentError(
      f'{name} with seed {seed} raised at step {step} since it was made: '
      f'{error if is_named else repr(error)}'
    ) from error


def _may_be_interrupted() -> bool:
  """Returns whether Python turns interrupts into errors of this thread.

  Runs record interrupts instead, so there only an environment can raise them.
  """
  return (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
  )


@contextlib.contextmanager
def closing(name: str) -> Iterator[None]:
  """Turns errors in closing an environment into warnings.

  The environment is no longer needed, so its errors must not hide results or
  other errors.
  """
  try:
    yield
  except Exception as error:
    warnings.warn(f'{name} raised when it was closed: {error!r}', stacklevel=3)


def keep_signals() -> None:
  """Keeps pygame, with which environments draw, from handling signals.

  Otherwise SIGTERM and SIGINT would have no effect while they draw.
  """
  os.environ.setdefault('SDL_NO_SIGNAL_HANDLERS', '1')
