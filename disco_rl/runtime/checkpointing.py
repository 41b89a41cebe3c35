"""Checkpoints of trees of arrays, by Orbax."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import os
import pathlib
import sys
import time
from typing import Any

import jax
import orbax.checkpoint as ocp

from disco_rl.runtime import distributed
from disco_rl.runtime import files


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or none of them can be read."""


class Checkpointer:
  """The newest checkpoints of a run, written in the background.

  A checkpoint is complete or does not exist: a kill while one is being written
  leaves those before it. Use as a context manager, which waits for the writer.

  Attributes:
    seconds: total time for which saving has blocked the run.
    keep: number of checkpoints that are kept.
  """

  def __init__(self, directory: str | os.PathLike[str], keep: int = 2):
    """Opens the folder, creating it where needed.

    Args:
      directory: folder of the checkpoints, with a folder for each step.
      keep: number of checkpoints to keep; two, because one may be damaged.
    """
    self.seconds = 0.0
    self.keep = keep
    self._directory = pathlib.Path(directory).resolve()
    self._manager = ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=True),
    )

  def save(self, step: int, tree: Any) -> None:
    """Begins to save a tree; returns once the tree may be overwritten.

    Args:
      step: number of the checkpoint.
      tree: tree of arrays.

    Raises:
      CheckpointError: this checkpoint, or the one before, cannot be written;
        those before them stay.
    """
    data = jax.tree.map(files.to_data, tree)
    with self._writing():
      self._manager.save(step, args=ocp.args.StandardSave(data))

  def restore(
    self, like: Any, restore_more: Callable[[Any], None] | None = None
  ) -> tuple[int, Any] | None:
    """Loads the newest tree that can be read.

    Damaged newer ones are moved to a folder beside that of the checkpoints, and
    a line on the standard error stream reports it.

    Args:
      like: a tree of the same structure, shapes and dtypes.
      restore_more: restores what belongs to a tree and is stored elsewhere; if
        it raises, the checkpoint counts as damaged.

    Returns:
      The step and the tree as it was saved; None if there are no checkpoints.

    Raises:
      CheckpointError: there are some, but none can be read. They stay.
    """
    damaged: dict[int, str] = {}
    for step in sorted(self._manager.all_steps(), reverse=True):
      try:
        tree = self._restore(step, like)
        if restore_more is not None:
          restore_more(tree)
      # Orbax, TensorStore and JSON each raise exceptions of their own.
      except Exception as error:
        damaged[step] = _first_line(error)
        if distributed.is_distributed():
          # Another process may have read its part successfully.
          break
        continue
      for bad, reason in damaged.items():
        self._put_aside(bad, reason, step)
      return step, tree
    if not damaged:
      return None
    newest, reason = next(iter(damaged.items()))
    raise CheckpointError(
      f'None of the checkpoints in {self._directory} can be read; step '
      f'{newest}: {reason}. They are damaged, or of another version of the '
      'program. Choose another --workdir to start anew'
      + (
        ', or move the folder of that step away to go on from the one before.'
        if distributed.is_distributed()
        else '.'
      )
    )

  def _put_aside(self, step: int, reason: str, instead: int) -> None:
    aside = self._directory.with_name('damaged_checkpoints')
    aside.mkdir(exist_ok=True)
    number = len(list(aside.iterdir()))
    path = aside / f'{step}.{number}'
    (self._directory / str(step)).rename(path)
    self._manager.reload()
    print(
      f'warning: the checkpoint of step {step} is damaged and was moved to '
      f'{path}; going on from step {instead}. {reason}',
      file=sys.stderr,
      flush=True,
    )

  def _restore(self, step: int, like: Any) -> Any:
    abstract = jax.tree.map(
      lambda x: ocp.utils.to_shape_dtype_struct(files.to_data(x)), like
    )
    restored = self._manager.restore(
      step, args=ocp.args.StandardRestore(abstract)
    )
    return jax.tree.map(files.from_data, restored, like)

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    start = time.perf_counter()
    try:
      yield
    # The file system, TensorStore and their threads raise many types.
    except Exception as error:
      raise CheckpointError(
        f'No checkpoint can be written to {self._directory}: '
        f'{_first_line(error)}. Is the disk full? Complete checkpoints stay; '
        'the same command goes on from the last of them.'
      ) from error
    finally:
      self.seconds += time.perf_counter() - start

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *_: object) -> None:
    with self._writing():
      self._manager.wait_until_finished()
      self._manager.close()


def _first_line(error: Exception) -> str:
  name, text = type(error).__name__, str(error).strip()
  return f'{name}: {text.splitlines()[0][:300]}' if text else name
