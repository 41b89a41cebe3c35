"""What adapters of host environments share: seeds, actions, located errors."""

from collections.abc import Iterator
import contextlib
from typing import Any

import numpy as np


class HostEnvironmentError(RuntimeError):
  """An environment failed: the message says which, its seed and its step."""


def sub_seeds(seed: int, num_environments: int) -> np.ndarray:
  """Draws the seeds of the environments of a batch.

  With `seed + i` for the i-th one, the batches of neighbouring seeds would be
  the same but for one environment.

  Args:
    seed: of the batch, at least 0.
    num_environments: B; a larger batch begins with the seeds of a smaller one.

  Returns:
    [B] int32, at least 0: simulators written in C take no more bits.
  """
  words = np.random.SeedSequence(seed).generate_state(num_environments)
  return (words >> 1).astype(np.int32)


def in_range(action: Any, num_actions: int) -> np.ndarray:
  """Checks actions: some simulators hang when they get a wrong one.

  Args:
    action: [B] integers.
    num_actions: A.

  Returns:
    [B] int32.

  Raises:
    ValueError: an action is none of 0 .. A - 1.
  """
  action = np.asarray(action, np.int32)
  if np.any((action < 0) | (action >= num_actions)):
    raise ValueError(f'actions must be 0 .. {num_actions - 1}, got {action}')
  return action


@contextlib.contextmanager
def located_errors(name: str, seed: int, step: int) -> Iterator[None]:
  """Says where an environment raised.

  Args:
    name: of the environment.
    seed: of the batch.
    step: how many steps the batch took since it was made.

  Raises:
    HostEnvironmentError: in place of any exception.
  """
  try:
    yield
  except Exception as error:
    raise HostEnvironmentError(
      f'{name} with seed {seed} raised at step {step} since it was made: '
      f'{error!r}'
    ) from error
