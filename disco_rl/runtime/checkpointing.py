"""Checkpoints of trees of arrays, written by Orbax."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import pathlib
import shutil
import time

import jax

from disco_rl import types
from disco_rl.runtime import digests
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.runtime import reports

with reports.callers_logging():
  import orbax.checkpoint as ocp

# A file next to the folder of the checkpoints: the newest complete step.
_LEDGER = '.newest_checkpoint'

# A folder within it, for old checkpoints that will be removed.
_TRASH = '.removed'


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or none of them can be read."""


class _Handler(ocp.StandardCheckpointHandler):
  """Records digests of a checkpoint's files before it counts as complete."""

  def finalize(self, directory: os.PathLike[str]) -> None:
    """Called by Orbax in its thread before it renames the folder."""
    super().finalize(directory)
    digests.record(pathlib.Path(directory))


class _Save(ocp.args.StandardSave):
  """A tree to save."""


class _Restore(ocp.args.StandardRestore):
  """The shapes of a tree to restore."""


with reports.callers_logging():
  ocp.args.register_with_handler(_Handler, for_save=True)(_Save)
  ocp.args.register_with_handler(_Handler, for_restore=True)(_Restore)


class Checkpointer:
  """The newest checkpoints of a run, written in the background.

  A checkpoint is complete or does not exist: a kill while one is being written
  leaves those before it. Its files are compared with digests before it is used.
  Use as a context manager, which waits for the writer.

  Attributes:
    seconds: The total time for which saving has blocked the run.
    keep: The number of checkpoints that are kept.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    keep: int = 2,
    logs: Sequence[pathlib.Path] = (),
  ):
    """Opens the folder, and creates it if needed.

    Args:
      directory: The folder of the checkpoints, with a folder for each step.
      keep: The number of checkpoints to keep; two, because one may be damaged.
        The one before them takes up space until the next is saved.
      logs: Files that the run appends to and that a checkpoint relies on. They
        are flushed to disk before it, and compared with it when it is used.
    """
    self.seconds = 0.0
    self.keep = keep
    self._directory = pathlib.Path(directory).resolve()
    self._ledger = self._directory.with_name(_LEDGER)
    self._logs = {
      os.path.relpath(path, self._directory.parent): path for path in logs
    }
    # Threads of Orbax also log; they end with this object.
    self._logging = contextlib.ExitStack()
    self._logging.enter_context(reports.callers_logging())
    self._manager = ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=True,
        cleanup_tmp_directories=True,
        # Orbax only renames old checkpoints, and `_empty_trash` removes them:
        # if Orbax could not remove one, the run would end. The folder is a new
        # one each time, because steps may be repeated.
        todelete_subdir=f'{_TRASH}/{time.time_ns()}',
      ),
      item_handlers=_Handler(),
    )
    self._reported_trash = False
    self._empty_trash()

  def save(self, step: int, tree: types.PyTree) -> None:
    """Begins to save a tree; returns once the tree may be overwritten.

    Raises:
      CheckpointError: This checkpoint, or the one before, cannot be written;
        earlier ones are kept.
    """
    data = jax.tree.map(files.to_data, tree)
    with self._writing():
      self._await_writer()
      notes = {
        name: _sync(path) for name, path in self._logs.items() if path.exists()
      }
      self._manager.save(step, args=_Save(data, custom_metadata=notes))

  def restore(
    self,
    like: types.PyTree,
    restore_more: Callable[[types.PyTree], None] | None = None,
  ) -> tuple[int, types.PyTree] | None:
    """Loads the newest tree that can be read.

    Damaged newer ones are moved to a folder next to that of the checkpoints.
    Lines on the standard error stream report them, and logs that are incomplete
    or were changed.

    Args:
      like: A tree of the same structure, shapes and dtypes.
      restore_more: Restores data that belong to a tree but are stored
        elsewhere; if it raises, the checkpoint counts as damaged.

    Returns:
      The step and the tree as it was saved; None if there are no checkpoints.

    Raises:
      CheckpointError: There are some, but none can be read. They are kept.
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
      self._check_ledger(max([step, *damaged]), step)
      self._check_logs(step)
      return step, tree
    if not damaged:
      self._report_rows_without_checkpoint()
      return None
    newest, reason = next(iter(damaged.items()))
    raise CheckpointError(
      f'None of the checkpoints in {self._directory} can be read; step '
      f'{newest}: {reason}. They are damaged, or of another version of the '
      'program. Choose another --workdir to start anew'
      + (
        ', or move the folder of that step away to use the one before.'
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
    reports.warn(
      f'the checkpoint of step {step} is damaged and was moved to {path}; '
      f'continuing from step {instead}. {reason}'
    )

  def _restore(self, step: int, like: types.PyTree) -> types.PyTree:
    if distributed.is_first():
      self._check_files(step)
    abstract = jax.tree.map(
      lambda x: ocp.utils.to_shape_dtype_struct(files.to_data(x)), like
    )
    restored = self._manager.restore(step, args=_Restore(abstract))
    return jax.tree.map(files.from_data, restored, like)

  def _check_files(self, step: int) -> None:
    if not digests.check(self._directory / str(step) / 'default'):
      reports.warn(
        f'the checkpoint of step {step} in {self._directory} has no digests '
        '(they were deleted): its files are used unchecked.'
      )

  def _enter(self, step: int | None) -> None:
    """Records that the checkpoint of a step is complete."""
    if step is not None and distributed.is_first():
      with files.replacing(self._ledger) as temporary:
        temporary.write_text(f'{step}\n')

  def _await_writer(self) -> None:
    self._manager.wait_until_finished()
    self._enter(self._manager.latest_step())
    self._empty_trash()

  def _empty_trash(self) -> None:
    """Removes old checkpoints; reports those that cannot be removed."""
    trash = self._directory / _TRASH
    if not distributed.is_first() or not trash.exists():
      return
    shutil.rmtree(trash, ignore_errors=True)
    if trash.exists() and not self._reported_trash:
      self._reported_trash = True
      reports.warn(
        f'old checkpoints in {trash} cannot be removed: another program may '
        'have their files open. The run continues, and tries again after each '
        'checkpoint; they take up space until then.'
      )

  def _check_ledger(self, newest: int, step: int) -> None:
    """Reports a missing checkpoint that was complete and newer than all."""
    # A lost or damaged ledger does not change any result.
    with contextlib.suppress(OSError, ValueError):
      noted = int(self._ledger.read_text())
      if noted > newest and distributed.is_first():
        reports.warn(
          f'the checkpoint of step {noted} was complete, but is no longer in '
          f'{self._directory}. The run continues from step {step}, and writes '
          'the later rows again.'
        )
    self._enter(step)

  def _check_logs(self, step: int) -> None:
    """Reports logs that have changed since a checkpoint."""
    notes = self._manager.item_metadata(step).custom_metadata or {}
    for name, path in self._logs.items():
      if name not in notes:
        continue
      digest = digests.Digest(*notes[name])
      if not path.exists() or digests.of_file(path, digest.size) != digest:
        reports.warn(
          f'{path} is not as it was at the checkpoint of step {step}: rows up '
          'to there are missing or changed. The run continues from there, and '
          'adds only later rows: restore the file if you can.'
        )

  def _report_rows_without_checkpoint(self) -> None:
    for path in self._logs.values():
      if path.exists() and path.stat().st_size:
        reports.warn(
          f'{path} has rows, but there are no checkpoints in '
          f'{self._directory}: the run was killed before its first, or they '
          'were deleted. It begins anew, and writes these rows again.'
        )

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    start = time.perf_counter()
    try:
      yield
    # The file system, TensorStore and their threads raise many types of errors.
    except Exception as error:
      cause = (
        'Is the disk full? Complete checkpoints stay; the same command '
        'continues from the last of them.'
        if self._directory.is_dir()
        else 'The folder was removed while the run was at work.'
      )
      raise CheckpointError(
        f'No checkpoint can be written to {self._directory}: '
        f'{_first_line(error)}. {cause}'
      ) from error
    finally:
      self.seconds += time.perf_counter() - start

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *_: object) -> None:
    with self._logging, self._writing():
      self._await_writer()
      self._manager.close()


def read(
  directory: pathlib.Path, like: types.PyTree
) -> tuple[int, types.PyTree]:
  """Loads the newest tree that can be read, without changing the folder.

  A run may be writing to the folder at the same time.

  Args:
    directory: The folder of the checkpoints of a run.
    like: A dictionary of trees of the same structure, with
      `jax.ShapeDtypeStruct` for arrays, which are placed on the first device,
      and with NumPy arrays for NumPy arrays. Entries that it lacks are not
      loaded.

  Raises:
    CheckpointError: There are none yet, or none can be read.
  """
  if not directory.is_dir():
    raise CheckpointError(f'{directory} is not a folder of checkpoints.')
  device = jax.sharding.SingleDeviceSharding(jax.devices()[0])

  def abstract(x: types.PyTree) -> types.PyTree:
    if not isinstance(x, jax.ShapeDtypeStruct):
      return ocp.utils.to_shape_dtype_struct(x)
    data = jax.eval_shape(files.to_data, x)
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=device)

  target = jax.tree.map(abstract, like)
  reason = 'the run has saved none yet'
  with reports.callers_logging(), ocp.Checkpointer(_Handler()) as reader:
    for step in reversed(files.steps(directory)):
      path = directory.resolve() / str(step) / 'default'
      try:
        digests.check(path)
        held = _Handler().metadata(path).tree
        others = jax.tree.map(
          lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device),
          {name: held[name] for name in set(held) - set(target)},
        )
        tree = reader.restore(path, args=_Restore({**target, **others}))
        tree = {name: tree[name] for name in like}
      # Of many types, as above; also if the run has just deleted it.
      except Exception as error:
        reason = _first_line(error)
        continue
      return step, jax.tree.map(files.from_data, tree, like)
  raise CheckpointError(
    f'None of the checkpoints in {directory} can be read: {reason}'
  )


def _sync(log: pathlib.Path) -> digests.Digest:
  """Flushes a file to disk; returns its digest."""
  files.flush_to_disk(log)
  return digests.of_file(log)


def _first_line(error: Exception) -> str:
  name, text = type(error).__name__, str(error).strip()
  return f'{name}: {text.splitlines()[0][:300]}' if text else name
