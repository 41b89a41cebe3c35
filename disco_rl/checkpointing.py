"""Checkpoints of trees of arrays, by Orbax."""

import os
import pathlib
from typing import Any

import jax
import orbax.checkpoint as ocp

from disco_rl import files


class Checkpointer:
  """The newest checkpoints of a run, written in the background.

  A checkpoint is complete or does not exist: a kill while one is being written
  leaves those before it. Use as a context manager, which waits for the writer.
  """

  def __init__(self, directory: str | os.PathLike[str], keep: int = 1):
    """Opens the folder, creating it where needed.

    Args:
      directory: of the checkpoints, one folder for each step.
      keep: how many of the newest remain.
    """
    self._manager = ocp.CheckpointManager(
      pathlib.Path(directory).resolve(),
      options=ocp.CheckpointManagerOptions(max_to_keep=keep, create=True),
    )

  def latest_step(self) -> int | None:
    """Step of the newest checkpoint; None if there is none."""
    return self._manager.latest_step()

  def save(self, step: int, tree: Any) -> None:
    """Begins to save a tree; returns once the tree may be overwritten."""
    self._manager.save(
      step, args=ocp.args.StandardSave(jax.tree.map(files.to_data, tree))
    )

  def restore(self, step: int, like: Any) -> Any:
    """Loads a tree.

    Args:
      step: of the checkpoint.
      like: a tree of the same structure, shapes and dtypes.

    Returns:
      The tree as it was saved.
    """
    abstract = jax.tree.map(
      lambda x: ocp.utils.to_shape_dtype_struct(files.to_data(x)), like
    )
    restored = self._manager.restore(
      step, args=ocp.args.StandardRestore(abstract)
    )
    return jax.tree.map(files.from_data, restored, like)

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *_: object) -> None:
    self._manager.wait_until_finished()
    self._manager.close()
