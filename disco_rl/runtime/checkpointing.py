"""Checkpoints of trees of arrays, written by Orbax."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import functools
import os
import pathlib
import shutil
import time
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.runtime import digests
from disco_rl.runtime import distributed
from disco_rl.runtime import file_systems
from disco_rl.runtime import files
from disco_rl.runtime import reports
from disco_rl.runtime import versions

with reports.callers_logging():
  import orbax.checkpoint as ocp
  from orbax.checkpoint._src.serialization import tensorstore_utils
  import tensorstore

# The file with the newest complete step, next to the checkpoint folder.
_LEDGER = '.newest_checkpoint'

# The folder for checkpoints to be deleted, inside the checkpoint folder.
_TRASH = '.removed'


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written, or no checkpoint can be read."""


class StructureError(CheckpointError):
  """A checkpoint is intact, but has another structure than this program's."""


class _Handler(ocp.StandardCheckpointHandler):
  """Writes digests of the files of a checkpoint before it is complete."""

  def finalize(self, directory: os.PathLike[str]) -> None:
    """Records digests; Orbax calls this before it renames the folder."""
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
  """Saves and restores a run's checkpoints, writing them in the background.

  Checkpoints are written atomically: if the run is killed while it writes one,
  the earlier ones remain. Before a checkpoint is restored, its files are
  verified against their digests. Use this class as a context manager, which
  waits for the writer on exit.

  Attributes:
    seconds: The total time for which saving has blocked the run.
  """

  def __init__(
    self,
    directory: str | os.PathLike[str],
    keep: int = 2,
    logs: Sequence[pathlib.Path] = (),
  ):
    """Opens the checkpoint folder, creating it if needed.

    Args:
      directory: The checkpoint folder, which has a subfolder for each step.
      keep: The number of checkpoints to keep. The default is two, because one
        of them may be damaged. A dropped checkpoint takes up space until the
        next one is saved.
      logs: Files that the run appends to and that must match a checkpoint. They
        are flushed to disk before a checkpoint is saved, and verified when it
        is restored.
    """
    self.seconds = 0.0
    self._directory = pathlib.Path(directory).resolve()
    self._ledger = self._directory.with_name(_LEDGER)
    self._logs = {
      os.path.relpath(path, self._directory.parent): path for path in logs
    }
    # Until this object is closed: Orbax has threads that log and write.
    self._surroundings = contextlib.ExitStack()
    self._surroundings.enter_context(reports.callers_logging())
    self._directory.parent.mkdir(parents=True, exist_ok=True)
    abilities = file_systems.probe(self._directory.parent)
    self._surroundings.enter_context(_sparing(abilities))
    self._manager = ocp.CheckpointManager(
      self._directory,
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=True,
        cleanup_tmp_directories=True,
        # Orbax only moves old checkpoints here, and `_empty_trash` deletes
        # them. If Orbax deleted them itself, a failure would end the run. Each
        # run uses a new folder, because steps may be repeated.
        todelete_subdir=f'{_TRASH}/{time.time_ns()}',
      ),
      item_handlers=_Handler(),
    )
    self._reported_trash = False
    self._empty_trash()

  @property
  def newest_step(self) -> int:
    """The step of the newest checkpoint, damaged or not; 0 if there is none."""
    return self._manager.latest_step() or 0

  def save(self, step: int, tree: types.PyTree) -> None:
    """Starts saving a tree; returns as soon as the tree may be overwritten.

    Raises:
      CheckpointError: This checkpoint or the previous one cannot be written;
        earlier checkpoints are kept.
    """
    data = jax.tree.map(_stored, tree)
    with self._writing():
      self._await_writer()
      notes: dict[str, object] = {versions.KEY: versions.present()}
      notes |= {
        name: _sync(path) for name, path in self._logs.items() if path.exists()
      }
      self._manager.save(step, args=_Save(data, custom_metadata=notes))

  def restore(
    self,
    like: types.PyTree,
    restore_more: Callable[[types.PyTree], None] | None = None,
    optional: Collection[str] = (),
  ) -> tuple[int, types.PyTree] | None:
    """Loads the newest tree that can be read.

    Damaged newer checkpoints are moved to a folder next to the checkpoint
    folder. Damaged checkpoints, and logs that are incomplete or have changed,
    are reported on the standard error stream.

    Args:
      like: A dictionary of trees with the structure, shapes and dtypes of the
        saved ones.
      restore_more: Restores data that belong to the tree but are stored
        elsewhere. If it raises, the checkpoint is treated as damaged.
      optional: Entries that may be missing from `like` or from the saved tree;
        the result has the saved ones.

    Returns:
      The step and the saved tree; None if there are no checkpoints.

    Raises:
      CheckpointError: There are checkpoints, but none can be read. They are
        kept.
      StructureError: The newest intact checkpoint has another structure.
    """
    damaged: dict[int, str] = {}
    for step in sorted(self._manager.all_steps(), reverse=True):
      try:
        tree = self._restore(step, like, optional)
        if restore_more is not None:
          restore_more(tree)
      except StructureError:
        raise
      # Orbax, TensorStore and JSON raise different types of exceptions.
      except Exception as error:
        damaged[step] = reports.first_line(error)
        if distributed.is_distributed():
          # Other processes may have read their parts successfully.
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
      f'{newest}: {reason}. They are damaged. Choose another --workdir to '
      'start over'
      + (
        ", or move that step's folder away to use the one before."
        if distributed.is_distributed()
        else '.'
      )
    )

  def _put_aside(self, step: int, reason: str, instead: int) -> None:
    """Moves a damaged checkpoint away; the run continues from `instead`."""
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

  def _restore(
    self, step: int, like: types.PyTree, optional: Collection[str]
  ) -> types.PyTree:
    path = self._directory / str(step) / 'default'
    if distributed.is_first() and not digests.check(path):
      reports.warn(
        f'the checkpoint of step {step} in {self._directory} has no digests '
        '(they were deleted), so its files are not verified.'
      )
    metadata = self._manager.item_metadata(step)
    held = metadata.tree
    if optional:
      like = {x: like[x] for x in like if x in held or x not in optional}
      for name in {*optional} & set(held) - set(like):
        empty = lambda x: np.empty(x.shape, x.dtype)
        like[name] = jax.tree.map(empty, held[name])

    def abstract(x: types.PyTree) -> types.PyTree:
      # From its mere shape, Orbax would restore a NumPy array onto the devices
      # that held it, if another number of processes saved it.
      stored = _stored(x)
      if isinstance(stored, np.ndarray):
        return stored
      return ocp.utils.to_shape_dtype_struct(stored)

    restored = _restore_by_name(
      self._directory,
      step,
      held,
      jax.tree.map(abstract, like),
      lambda target: self._manager.restore(step, args=_Restore(target)),
    )
    return jax.tree.map(files.from_data, restored, like)

  def _enter(self, step: int | None) -> None:
    """Records in the ledger that the checkpoint of a step is complete."""
    if step is not None and distributed.is_first():
      with files.replacing(self._ledger) as temporary:
        temporary.write_text(f'{step}\n')

  def _await_writer(self) -> None:
    self._manager.wait_until_finished()
    self._enter(self._manager.latest_step())
    self._empty_trash()

  def _empty_trash(self) -> None:
    """Deletes old checkpoints; reports those that cannot be deleted."""
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
    """Reports if a newer complete checkpoint has disappeared.

    Args:
      newest: The newest step in the folder, damaged or not.
      step: The restored step, which is then entered in the ledger.
    """
    # A missing or damaged ledger does not affect any result.
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
    """Reports logs that no longer match a checkpoint."""
    notes = _notes(self._directory, step)
    for name, path in self._logs.items():
      if name not in notes:
        continue
      digest = digests.Digest(*notes[name])
      if not path.exists() or digests.of_file(path, digest.size) != digest:
        reports.warn(
          f'{path} has changed since the checkpoint of step {step}: rows up to '
          'that step are missing or different. The run continues from there, '
          'and adds only later rows: restore the file if you can.'
        )

  def _report_rows_without_checkpoint(self) -> None:
    for path in self._logs.values():
      if path.exists() and path.stat().st_size:
        reports.warn(
          f'{path} has rows, but there are no checkpoints in '
          f'{self._directory}: the run was killed before its first one, or '
          'they were deleted. It starts from the beginning, and writes these '
          'rows again.'
        )

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    start = time.perf_counter()
    try:
      yield
    # The file system, TensorStore and its threads raise many types of errors.
    except Exception as error:
      remedy = (
        'Complete checkpoints are kept; the same command continues from the '
        'newest one.'
      )
      if file_systems.is_full(error):
        reason = 'the disk is full, or the quota of this user'
        remedy = f'Free space there. {remedy}'
      else:
        reason = file_systems.reason_in(f'{error}') or reports.first_line(error)
        if not self._directory.is_dir():
          remedy = 'The folder was removed while the run was in progress.'
      raise CheckpointError(
        f'No checkpoint can be written to {self._directory}: {reason}. {remedy}'
      ) from error
    finally:
      self.seconds += time.perf_counter() - start

  def __enter__(self) -> 'Checkpointer':
    return self

  def __exit__(self, *_: object) -> None:
    with self._surroundings, self._writing():
      self._await_writer()
      self._manager.close()


def read(
  directory: pathlib.Path,
  like: Mapping[str, types.PyTree],
  optional: Collection[str] = (),
) -> tuple[int, dict[str, types.PyTree]]:
  """Loads the newest tree that can be read, without changing the folder.

  A run may be writing to the folder.

  Args:
    directory: The checkpoint folder of a run.
    like: A dictionary of trees with the structure of the saved ones. Its leaves
      are `jax.ShapeDtypeStruct` for JAX arrays, which are placed on the first
      device, and NumPy arrays for NumPy arrays. Saved entries that it lacks
      are dropped.
    optional: Entries that may be missing from the saved trees.

  Returns:
    The step, and the trees under the keys of `like`.

  Raises:
    CheckpointError: There are no checkpoints yet, or none can be read.
  """
  if not directory.is_dir():
    raise CheckpointError(
      f'{directory} is not a folder of checkpoints: likely the run has saved '
      'none yet. Wait for the first, or resume the run if it was stopped.'
    )
  device = jax.sharding.SingleDeviceSharding(jax.devices()[0])

  def abstract(x: types.PyTree) -> types.PyTree:
    if not isinstance(x, jax.ShapeDtypeStruct):
      return ocp.utils.to_shape_dtype_struct(x)
    data = jax.eval_shape(files.to_data, x)
    return jax.ShapeDtypeStruct(data.shape, data.dtype, sharding=device)

  reason = 'the run has saved none yet'
  with reports.callers_logging(), ocp.Checkpointer(_Handler()) as reader:
    for step in reversed(files.steps(directory)):
      path = directory.resolve() / str(step) / 'default'
      try:
        digests.check(path)
        held = _Handler().metadata(path).tree
        wanted = {x: like[x] for x in like if x in held or x not in optional}
        others = jax.tree.map(
          lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device),
          {name: held[name] for name in set(held) - set(like)},
        )
        tree = _restore_by_name(
          directory,
          step,
          {name: held[name] for name in held if name in like},
          jax.tree.map(abstract, wanted),
          functools.partial(_restore_with, reader, path, others),
        )
      except StructureError:
        raise
      # As in `Checkpointer.restore`; the run may also have just deleted it.
      except Exception as error:
        reason = reports.first_line(error)
        continue
      return step, jax.tree.map(files.from_data, tree, wanted)
  raise CheckpointError(
    f'None of the checkpoints in {directory} can be read: {reason}'
  )


@contextlib.contextmanager
def _sparing(abilities: file_systems.Abilities) -> Iterator[None]:
  """Makes TensorStore do without what the file system lacks."""
  lacks: dict[str, object] = {}
  if not abilities.flushes:
    lacks['file_io_sync'] = False
  if not abilities.locks:
    lacks['file_io_locking'] = {'mode': 'none'}
  if not lacks:
    yield
    return
  # Orbax has no setting for it.
  make_context = tensorstore_utils.get_ts_context
  tensorstore_utils.get_ts_context = lambda **settings: tensorstore.Context(
    lacks, parent=make_context(**settings)
  )
  try:
    yield
  finally:
    tensorstore_utils.get_ts_context = make_context


def _restore_by_name(
  directory: pathlib.Path,
  step: int,
  held: types.PyTree,
  target: Mapping[str, types.PyTree],
  restore: Callable[[types.PyTree], types.PyTree],
) -> dict[str, types.PyTree]:
  """Restores a tree, whose arrays an earlier version may have lacked or moved.

  Args:
    directory: The checkpoint folder.
    step: The step of the checkpoint.
    held: What the checkpoint has, as trees by name.
    target: The trees to restore, by name.
    restore: Reads trees like its argument from the checkpoint, by name.

  Returns:
    The trees; arrays that `versions.CHANGES` lists as new are zero.

  Raises:
    StructureError: The checkpoint has other arrays.
  """
  version = _notes(directory, step).get(versions.KEY)
  new = versions.new_arrays(version)
  present = lambda name: versions.array_name(name, version)
  former = _by_name(held)
  found = {present(name): leaf for name, leaf in former.items()}
  wanted = _by_name(target)
  missing = [x for x in wanted if x not in found and x.endswith(new)]
  for name in sorted({*found, *wanted} - {*missing}):
    shapes = [[*x[name].shape] if name in x else None for x in (found, wanted)]
    if shapes[0] != shapes[1]:
      raise StructureError(
        f'The checkpoint of step {step} in {directory}, written by '
        f'{versions.written_by(version)}, has another structure than those of '
        f'version {versions.present()}: {name} has the shape {shapes[0]}, '
        f'expected {shapes[1]}. Continue with that version, and with the '
        'settings, environments, rules and torsos of then (a fork with those '
        'of its source), or choose another --workdir to start over.'
      )
  if not missing and {*former} == {*found}:
    tree = restore(target)
    return {name: tree[name] for name in target}
  wanted_by_held = jax.tree.map_with_path(
    lambda path, _: wanted[present(_name(path))], held
  )
  restored = _by_name(restore(wanted_by_held))
  read = {present(name): leaf for name, leaf in restored.items()}
  leaves = [read[x] if x in read else _zeros(wanted[x]) for x in wanted]
  return jax.tree.unflatten(jax.tree.structure(target), leaves)


def _restore_with(
  reader: ocp.Checkpointer,
  path: pathlib.Path,
  others: Mapping[str, types.PyTree],
  target: Mapping[str, types.PyTree],
) -> dict[str, types.PyTree]:
  """Restores trees by name, and others, which Orbax wants to restore, too."""
  return reader.restore(path, args=_Restore({**target, **others}))


def _by_name(tree: types.PyTree) -> dict[str, Any]:
  """Returns the leaves of a tree, by names such as lifetimes.0.1."""
  return {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def _name(path: Sequence[Any]) -> str:
  """Returns the name of a leaf, equal for records and for their metadata."""
  part = lambda key: getattr(
    key, 'key', getattr(key, 'idx', getattr(key, 'name', None))
  )
  return '.'.join(str(part(key)) for key in path)


def _stored(x: types.PyTree) -> types.PyTree:
  """Returns a leaf as Orbax stores it: data of keys, and NumPy arrays.

  NumPy arrays, which the first process writes, replace JAX arrays that are in
  this process alone: Orbax refuses them if there are others.
  """
  data = files.to_data(x)
  if isinstance(data, jax.Array) and distributed.is_only_here(data):
    return np.asarray(data)
  return data


def _zeros(like: types.PyTree) -> types.PyTree:
  """Makes an array of zeros, in the place of `like`."""
  zeros = np.zeros(like.shape, like.dtype)
  if isinstance(like, np.ndarray):
    return zeros
  return jax.make_array_from_callback(
    like.shape, like.sharding, lambda index: zeros[index]
  )


def _notes(directory: pathlib.Path, step: int) -> dict[str, Any]:
  """Reads what `Checkpointer.save` noted about a checkpoint."""
  path = directory / str(step) / 'default'
  return _Handler().metadata(path).custom_metadata or {}


def _sync(log: pathlib.Path) -> digests.Digest:
  """Flushes a file to disk and returns its digest."""
  files.flush_to_disk(log)
  return digests.of_file(log)
