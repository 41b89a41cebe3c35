"""What adapters of host environments share: seeds and located errors."""

from collections.abc import Iterator
import contextlib

import numpy as np


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


@contextlib.contextmanager
def located_errors(name: str, seed: int, step: int) -> Iterator[None]:
  """Says where an environment raised.

  Args:
    name: of the environment.
    seed: of the batch.
    step: how many steps the batch took since it was made.

  Raises:
    RuntimeError: in place of any exception.
  """
  try:
    yield
  except Exception as error:
    raise RuntimeError(
      f'{name} with seed {seed} raised at step {step} since it was made: '
      f'{error!r}'
    ) from error
