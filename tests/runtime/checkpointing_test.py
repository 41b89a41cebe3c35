"""Tests of runtime/checkpointing.py: saving, restoring, and damage."""

from collections.abc import Iterator
from collections.abc import Sequence
import errno
import gc
import os
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import launching
import numpy as np
import pytest

from disco_rl.runtime import checkpointing
from disco_rl.runtime import files

# Orbax leaks its other reads when one file cannot be read.
pytestmark = [
  pytest.mark.filterwarnings(f'ignore::pytest.{name}')
  for name in (
    'PytestUnraisableExceptionWarning',
    'PytestUnhandledThreadExceptionWarning',
  )
]


@pytest.fixture(autouse=True, scope='module')
def collect_garbage() -> Iterator[None]:
  yield
  gc.collect()  # While warnings of leaks are ignored.


def tree(step: int) -> dict[str, Any]:
  rng = np.random.default_rng(step)
  return {
    'params': jnp.asarray(rng.normal(size=(40, 30)), jnp.float32),
    'keys': jax.random.split(jax.random.key(step), 3),
    'lives': [(np.arange(step, step + 5), np.asarray(1.5))],
  }


def step_of(restored: dict[str, Any]) -> int:
  """The step of a tree; all of its arrays must be those of `tree(step)`."""
  step = int(restored['lives'][0][0][0])
  for pair in zip(jax.tree.leaves(restored), jax.tree.leaves(tree(step))):
    np.testing.assert_array_equal(*map(files.to_data, pair))
  return step


def save(
  directory: pathlib.Path, *steps: int, logs: Sequence[pathlib.Path] = ()
) -> None:
  with checkpointing.Checkpointer(directory, logs=logs) as checkpointer:
    for step in steps:
      checkpointer.save(step, tree(step))


@pytest.fixture(scope='module')
def saved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A folder with the checkpoints of steps 2 and 3; not to be changed."""
  directory = tmp_path_factory.mktemp('run') / 'checkpoints'
  with checkpointing.Checkpointer(directory) as checkpointer:
    assert checkpointer.restore(tree(0)) is None
    for step in (1, 2, 3):
      checkpointer.save(step, tree(step))
  assert {path.name for path in directory.iterdir()} == {'2', '3'}
  return directory


@pytest.fixture
def copy(saved: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(saved, tmp_path / 'checkpoints')


def restore(directory: pathlib.Path, logs: Sequence[pathlib.Path] = ()) -> int:
  """Restores the newest checkpoint, and returns its step."""
  with checkpointing.Checkpointer(directory, logs=logs) as checkpointer:
    newest = checkpointer.restore(tree(0))
  assert newest is not None
  step, restored = newest
  assert step_of(restored) == step
  return step


def truncate(path: pathlib.Path) -> None:
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])


def flip(path: pathlib.Path) -> None:
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize('damage', [truncate, flip, pathlib.Path.unlink])
def test_damage_to_any_file_costs_one_checkpoint_at_most(
  saved: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  damage: Any,
) -> None:
  files = [path for path in (saved / '3').rglob('*') if path.is_file()]
  steps = []
  for i, path in enumerate(files):
    directory = shutil.copytree(saved, tmp_path / str(i) / 'checkpoints')
    damage(directory / path.relative_to(saved))
    steps.append(restore(directory))
    warning = capsys.readouterr().err
    aside = directory.with_name('damaged_checkpoints') / '3.0'
    # Some files are only for people.
    assert aside.exists() == (steps[-1] == 2)
    assert (str(aside) in warning) == (steps[-1] == 2)
  assert set(steps) == {2, 3}


def test_a_checkpoint_without_its_folder_of_arrays(copy: pathlib.Path) -> None:
  shutil.rmtree(copy / '3' / 'default')
  assert restore(copy) == 2
  assert (copy.with_name('damaged_checkpoints') / '3.0').exists()


def test_a_checkpoint_without_digests_is_used_and_reported(
  copy: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  """Digests may have been deleted."""
  (copy / '3' / 'default' / 'digests.json').unlink()
  assert restore(copy) == 3
  assert 'step 3 in .* has no digests' in capsys.readouterr().err.replace(
    str(copy), '.*'
  )


ROWS = b'update,seed\n1,0\n'


@pytest.mark.parametrize(
  ('now', 'is_reported'),
  [
    (ROWS, False),
    (ROWS + b'2,0\n', False),
    (ROWS[:-1], True),
    (b'', True),
    (None, True),
    (ROWS.replace(b'1,0', b'3,0') + b'2,0\n', True),
  ],
)
def test_logs_are_compared_with_the_checkpoint(
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  now: bytes | None,
  is_reported: bool,
) -> None:
  log = tmp_path / 'metrics.csv'
  log.write_bytes(ROWS)
  directory = tmp_path / 'checkpoints'
  save(directory, 1, logs=[log])
  log.unlink() if now is None else log.write_bytes(now)
  assert not capsys.readouterr().err
  assert restore(directory, [log]) == 1
  warning = f'{log} has changed since the checkpoint of step 1'
  assert (warning in capsys.readouterr().err) == is_reported


def test_logs_are_on_the_disk_before_a_checkpoint(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  synced = []
  fsync = os.fsync

  def recorded(descriptor: int) -> None:
    synced.append(os.fstat(descriptor).st_ino)
    fsync(descriptor)

  monkeypatch.setattr(os, 'fsync', recorded)
  log = tmp_path / 'metrics.csv'
  log.write_bytes(ROWS)
  save(tmp_path / 'checkpoints', 1, logs=[log])
  assert log.stat().st_ino in synced


def test_rows_of_deleted_checkpoints(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  log = tmp_path / 'metrics.csv'
  for content in (b'', ROWS):
    log.write_bytes(content)
    directory = tmp_path / 'checkpoints'
    with checkpointing.Checkpointer(directory, logs=[log]) as checkpointer:
      assert checkpointer.restore(tree(0)) is None
    warning = f'{log} has rows, but there are no checkpoints in {directory}'
    assert (warning in capsys.readouterr().err) == bool(content)


def test_a_deleted_checkpoint_is_reported_once(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  directory = tmp_path / 'checkpoints'
  save(directory, 1, 2)
  shutil.rmtree(directory / '2')
  assert restore(directory) == 1
  warning = f'step 2 was complete, but is no longer in {directory}.'
  assert warning in capsys.readouterr().err
  assert restore(directory) == 1
  assert not capsys.readouterr().err


@pytest.mark.parametrize('content', [None, '', '2', 'x', '\udcff'])
def test_a_damaged_ledger_changes_nothing(
  content: str | None,
  copy: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  ledger = copy.with_name('.newest_checkpoint')
  if content is not None:
    ledger.write_text(content, errors='surrogateescape')
  assert restore(copy) == 3
  assert not capsys.readouterr().err
  assert ledger.read_text() == '3\n'


def test_what_a_killed_writer_left_is_removed(copy: pathlib.Path) -> None:
  left = copy / '4.orbax-checkpoint-tmp'
  (left / 'default.orbax-checkpoint-tmp').mkdir(parents=True)
  save(copy, 5)
  assert not left.exists()


def test_old_checkpoints_that_cannot_be_removed(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capfd: pytest.CaptureFixture[str],
) -> None:
  # NFS keeps a file that a program has open under another name, in its folder.
  def in_use(path: str | pathlib.Path, *_: object, **__: object) -> None:
    raise OSError(errno.ENOTEMPTY, 'Directory not empty', str(path))

  directory = tmp_path / 'checkpoints'
  for steps in ((1, 2, 3, 4), (5, 6)):
    with monkeypatch.context() as patch:
      patch.setattr(os, 'rmdir', in_use)
      save(directory, *steps)
    assert capfd.readouterr().err.count('cannot be removed') == 1
    assert files.steps(directory) == [steps[-2], steps[-1]]
  assert restore(directory) == 6
  assert {path.name for path in directory.iterdir()} == {'5', '6'}
  assert not capfd.readouterr().err


def test_the_run_goes_on_where_a_checkpoint_was_put_aside(
  copy: pathlib.Path,
) -> None:
  for name in ('_METADATA', 'manifest.ocdbt'):
    truncate(copy / '3' / 'default' / name)
    with checkpointing.Checkpointer(copy) as checkpointer:
      assert checkpointer.restore(tree(0))
      checkpointer.save(3, tree(3))
    assert restore(copy) == 3
  aside = copy.with_name('damaged_checkpoints')
  assert {path.name for path in aside.iterdir()} == {'3.0', '3.1'}


def test_no_checkpoint_can_be_read(copy: pathlib.Path) -> None:
  for step in ('2', '3'):
    truncate(copy / step / 'default' / '_METADATA')
  before = launching.contents(copy)
  with pytest.raises(
    checkpointing.CheckpointError, match='None of .*; step 3: .*--workdir'
  ):
    restore(copy)
  assert launching.contents(copy) == before


def test_checkpoints_of_another_tree(copy: pathlib.Path) -> None:
  other = {**tree(0), 'params': jnp.zeros((40, 31))}
  with (
    checkpointing.Checkpointer(copy) as checkpointer,
    pytest.raises(checkpointing.StructureError, match='params has the shape'),
  ):
    checkpointer.restore(other)
  assert restore(copy) == 3


@pytest.mark.parametrize('is_saved', [True, False])
def test_only_one_of_two_trees_has_an_optional_entry(
  tmp_path: pathlib.Path, is_saved: bool
) -> None:
  games = {'games': {'0': [np.arange(3)]}}
  like, saved = ({}, games) if is_saved else (games, {})
  with checkpointing.Checkpointer(tmp_path / 'run') as checkpointer:
    checkpointer.save(1, {**tree(1), **saved})
  with checkpointing.Checkpointer(tmp_path / 'run') as checkpointer:
    newest = checkpointer.restore({**tree(0), **like}, optional=['games'])
  assert newest is not None
  restored = newest[1]
  np.testing.assert_equal(restored.pop('games', None), saved.get('games'))
  assert step_of(restored) == 1


def test_numpy_arrays_that_were_on_devices_that_are_gone(
  copy: pathlib.Path,
) -> None:
  """One process has in NumPy arrays what two had on their devices."""
  step = copy / '3' / 'default'
  (step / 'digests.json').unlink()
  text = (step / '_sharding').read_text()
  assert 'cpu:0' in text
  (step / '_sharding').write_text(text.replace('cpu:0', 'cpu:99'))
  like = {**tree(0), 'params': np.zeros((40, 30), np.float32)}
  with checkpointing.Checkpointer(copy) as checkpointer:
    newest = checkpointer.restore(like)
  assert newest is not None and newest[0] == step_of(newest[1]) == 3
  assert isinstance(newest[1]['params'], np.ndarray)


def test_a_folder_that_was_removed_is_named(copy: pathlib.Path) -> None:
  with (
    pytest.raises(checkpointing.CheckpointError, match='removed while'),
    checkpointing.Checkpointer(copy),
  ):
    shutil.rmtree(copy.parent)


# Files may not grow beyond 64 KiB: to the writer the disk is full.
LIMITED_DISK = """
import resource, sys
from absl import logging
import numpy as np
from disco_rl.runtime import checkpointing
from launch import errors

logging.use_absl_handler()
errors.hide_tracebacks()
with checkpointing.Checkpointer(sys.argv[1]) as checkpointer:
  checkpointer.save(1, {'x': np.zeros(10)})
resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
noise = np.random.default_rng(0).normal(size=10**6)
try:
  with checkpointing.Checkpointer(sys.argv[1]) as checkpointer:
    checkpointer.save(2, {'x': noise})
except checkpointing.CheckpointError as error:
  print(error)
with checkpointing.Checkpointer(sys.argv[1]) as checkpointer:
  print(checkpointer.restore({'x': np.zeros(10)})[0])
"""


def test_a_failed_write_leaves_complete_checkpoints(
  tmp_path: pathlib.Path,
) -> None:
  ended = launching.run_python(
    '-c', LIMITED_DISK, str(tmp_path / 'checkpoints')
  )
  assert ended.returncode == 0, ended.stderr
  assert not ended.stderr
  message, step = ended.stdout.splitlines()
  assert message.startswith('No checkpoint can be written to')
  # Not that the disk is full: this one has a limit.
  assert ': File too large. Complete checkpoints are kept' in message
  assert step == '1'
