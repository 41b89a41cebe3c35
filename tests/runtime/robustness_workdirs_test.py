"""Damaged files in folders of runs are read, or refused and not changed."""

from collections.abc import Callable
import errno
import fcntl
import json
import os
import pathlib
from typing import Any
from unittest import mock

import damage
import filelock
import hypothesis
from hypothesis import strategies as st
import launching
import pytest

from disco_rl.api import agent_files
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.training import learning_curves
from disco_rl.update_rules import cards
from disco_rl.update_rules import weights

CSV = b'update,seed,environment_steps,return\n5,0,40,\n5,1,40,0.5\n10,0,80,-1\n'


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return tmp_path_factory.mktemp('damaged')


@damage.FEW
@hypothesis.given(
  content=st.one_of(
    damage.damaged(CSV), st.text('1a,.-"\n\r', max_size=60).map(str.encode)
  )
)
def test_damaged_metrics(folder: pathlib.Path, content: bytes) -> None:
  path = folder / 'metrics.csv'
  path.write_bytes(content)
  error = workdirs.WorkdirError
  columns = damage.outcome(lambda: metrics.read(path), path, error)
  curve = damage.outcome(lambda: learning_curves.read_curve(path), path, error)
  if columns is None:
    assert curve is None
  else:
    assert len({len(column) for column in columns.values()}) <= 1
    assert {column.dtype.kind for column in columns.values()} <= set('ifU')


@damage.FEW
@hypothesis.given(content=damage.damaged(CSV), last=st.integers(0, 10))
def test_resuming_damaged_metrics(
  tmp_path_factory: pytest.TempPathFactory, content: bytes, last: int
) -> None:
  """Either rows up to the step are kept, or the file stays as it is."""
  workdir = tmp_path_factory.mktemp('run')
  path = workdir / 'metrics.csv'
  path.write_bytes(content)

  def resume() -> bytes:
    metrics.MetricsWriter(workdir, last).close()
    return path.read_bytes()

  kept = damage.outcome(resume, path, workdirs.WorkdirError)
  if kept is None:
    assert path.read_bytes() == content
  elif kept:
    assert (metrics.read(path)['update'] <= last).all()


SETTINGS = {'seed': 0, 'rule': 'disco103', 'hidden_sizes': [4, 4]}
JSON = st.recursive(
  st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
  lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3),
  max_leaves=5,
)


@damage.FEW
@hypothesis.given(
  content=st.one_of(
    damage.damaged(json.dumps(SETTINGS).encode()),
    JSON.map(lambda tree: json.dumps(tree).encode()),
    st.just(b'[' * 100_000),
    st.just(json.dumps(SETTINGS, indent=2).encode()),
  )
)
def test_a_folder_with_a_damaged_config(
  folder: pathlib.Path, content: bytes
) -> None:
  path = folder / 'config.json'
  path.write_bytes(content)
  refused = False
  try:
    workdirs.claim(folder, SETTINGS, free=())
  except workdirs.WorkdirError as error:
    assert str(folder) in str(error)
    refused = True
  if refused:
    assert path.read_bytes() == content
  else:
    # Without a version, it is of the first one that wrote none.
    kept = json_files.read(path)
    kept.pop('version')
    assert json.loads(content) == SETTINGS == kept


def test_a_folder_with_damaged_metrics(tmp_path: pathlib.Path) -> None:
  workdirs.claim(tmp_path, SETTINGS, free=())
  (tmp_path / 'metrics.csv').write_bytes(CSV + b'1,2\n')
  with pytest.raises(workdirs.WorkdirError, match='metrics.csv .* row 4'):
    workdirs.claim(tmp_path, SETTINGS, free=())


def test_temporary_files_of_a_killed_run_are_removed(
  tmp_path: pathlib.Path,
) -> None:
  left = [
    tmp_path / f'.rule.npz.{"0a" * 16}.tmp',
    tmp_path / 'held_out' / f'.metrics.csv.{"b1" * 16}.tmp',
    tmp_path / 'figures' / f'.catch_iqm.png.{"c2" * 16}.tmp',
  ]
  other = [tmp_path / '.notes.tmp', tmp_path / 'metrics.tmp']
  for path in (*left, *other):
    path.parent.mkdir(exist_ok=True)
    path.touch()
  with workdirs.locked(tmp_path):
    pass
  assert not any(path.exists() for path in left)
  assert all(path.exists() for path in other)


@pytest.mark.parametrize('code', ['ENOLCK', 'ENOSYS', 'EACCES'])
def test_file_systems_without_locks(
  code: str,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  def flock(*_: object) -> None:
    raise OSError(number := getattr(errno, code), os.strerror(number))

  monkeypatch.setattr(fcntl, 'flock', flock)
  if code == 'EACCES':  # Another has the lock.
    with pytest.raises(workdirs.WorkdirError, match='in use by another run'):
      workdirs.locked(tmp_path).__enter__()
    return
  with workdirs.locked(tmp_path):
    (line,) = capsys.readouterr().err.splitlines()
  assert f'{tmp_path}/.lock cannot be locked (' in line
  assert f'no other run uses {tmp_path}, or choose' in line


def test_a_folder_without_permission_is_not_said_to_lack_locks(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  denied = PermissionError(errno.EACCES, 'Permission denied', 'x/.lock')
  acquire = mock.Mock(side_effect=denied)
  monkeypatch.setattr(filelock.FileLock, 'acquire', acquire)
  with pytest.raises(PermissionError, match='denied'):
    workdirs.locked(tmp_path).__enter__()
  assert not capsys.readouterr().err


@pytest.mark.parametrize('code', ['EINVAL', 'ENOSYS', 'EIO'])
def test_file_systems_that_cannot_flush(
  code: str,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  error = OSError(getattr(errno, code), 'no')
  monkeypatch.setattr(os, 'fsync', mock.Mock(side_effect=error))
  path = tmp_path / 'x.json'
  if code == 'EIO':  # The disk has failed.
    with pytest.raises(OSError, match=f'no: .*{path.name}'):
      json_files.write(path, {})
    return
  json_files.write(path, {'a': 1})
  assert json_files.read(path) == {'a': 1}
  with workdirs.locked(tmp_path):
    pass
  warned = f'the file system of {tmp_path} cannot flush files to the disk'
  assert capsys.readouterr().err.count(warned) == 1


def test_files_with_the_longest_names_are_written(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / ('x' * (os.pathconf(tmp_path, 'PC_NAME_MAX') - 5) + '.json')
  files.check_writable(path)
  json_files.write(path, {'a': 1})
  assert json_files.read(path) == {'a': 1}


def test_folders_that_cannot_be_made_are_refused_at_the_start(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  for name in ('x' * 300, f'a/{"x" * 300}', f'a/{"x" * 300}/b'):
    with pytest.raises(OSError, match='File name too long'):
      workdirs.check(tmp_path / name, {}, ())
  monkeypatch.setattr(os, 'access', lambda *_: False)
  with pytest.raises(PermissionError, match=f'Cannot write .*{tmp_path}'):
    workdirs.check(tmp_path / 'new' / 'run', {}, ())
  assert not list(tmp_path.iterdir())


def test_a_file_is_not_a_folder_of_a_run(tmp_path: pathlib.Path) -> None:
  (tmp_path / 'file').touch()
  (tmp_path / 'link').symlink_to(tmp_path / 'gone')
  for name in ('file', 'link'):
    with pytest.raises(workdirs.WorkdirError, match=f'{name} is a file, or'):
      workdirs.locked(tmp_path / name).__enter__()


def test_a_rule_that_changed_since_the_run_began(
  tmp_path: pathlib.Path,
) -> None:
  rule, workdir = tmp_path / 'rule.npz', tmp_path / 'run'
  rule.write_bytes(b'one')
  for _ in range(2):
    workdirs.claim(workdir, SETTINGS, free=(), rules={str(rule): str(rule)})
  rule.write_bytes(b'two')
  with pytest.raises(workdirs.WorkdirError, match=f'{rule} changed since'):
    workdirs.claim(workdir, SETTINGS, free=(), rules={str(rule): str(rule)})


@pytest.mark.parametrize('length', ['updates', 'meta_steps'])
def test_a_run_does_not_become_shorter(
  tmp_path: pathlib.Path, length: str
) -> None:
  free = (length,)
  workdirs.claim(tmp_path, {**SETTINGS, length: 40}, free)
  for name in ('9', '20', '30.orbax-checkpoint-tmp'):
    (tmp_path / 'checkpoints' / name).mkdir(parents=True)
  with pytest.raises(
    workdirs.WorkdirError, match=f'of 20 {length}, more than {length}=19'
  ):
    workdirs.claim(tmp_path, {**SETTINGS, length: 19}, free)
  assert json.loads((tmp_path / 'config.json').read_text())[length] == 40
  workdirs.claim(tmp_path, {**SETTINGS, length: 20}, free)


def test_names_that_are_not_utf8_are_refused_at_the_start(
  tmp_path: pathlib.Path,
) -> None:
  workdir = tmp_path / os.fsdecode(b'caf\xe9') / 'run'
  with pytest.raises(workdirs.WorkdirError, match=r'caf.udce9.* not UTF-8'):
    workdirs.check(workdir, SETTINGS, free=())
  with (
    pytest.raises(workdirs.WorkdirError, match='not UTF-8'),
    workdirs.locked(workdir),
  ):
    pass
  assert not any(tmp_path.iterdir())


# Folders of strangers.


@pytest.fixture
def outside(tmp_path: pathlib.Path) -> pathlib.Path:
  """A folder of the user, outside of the run's."""
  folder = tmp_path / 'outside'
  (folder / 'sub').mkdir(parents=True)
  (folder / 'file').write_text('mine')
  (folder / '.x.0123456789abcdef0123456789abcdef.tmp').write_text('mine')
  return folder


@pytest.mark.parametrize(
  ('name', 'target'),
  [
    ('.owner', 'file'),
    ('summary.json', 'file'),
    ('curves.png', 'new'),
    ('checkpoints', 'sub'),
    ('held_out', ''),
    ('checkpoints/5', 'sub'),
    ('a/b/metrics.csv', 'file'),
  ],
)
def test_links_that_lead_out_of_a_run_are_refused(
  name: str, target: str, outside: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  link = tmp_path / 'run' / name
  link.parent.mkdir(parents=True)
  link.symlink_to(outside / target)
  before = launching.contents(tmp_path)
  with pytest.raises(
    workdirs.WorkdirError, match=f'{link} is a link to {outside}'
  ):
    workdirs.locked(tmp_path / 'run').__enter__()
  assert launching.contents(tmp_path) == before


def test_links_of_the_user_are_followed(
  outside: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  """The folder itself may be a link, and files in it links within it."""
  (tmp_path / 'link').symlink_to(outside)
  (outside / 'newest').symlink_to('file')
  (outside / 'wandb').mkdir()
  (outside / 'wandb' / 'debug.log').symlink_to('/etc/hosts')
  for workdir in (tmp_path / 'link', tmp_path / 'link' / 'sub'):
    with workdirs.locked(workdir):
      assert (workdir / '.owner').read_text().startswith('process')


def test_a_second_name_of_a_file_is_not_overwritten(
  outside: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  (tmp_path / 'run').mkdir()
  os.link(outside / 'file', tmp_path / 'run' / '.owner')
  with workdirs.locked(tmp_path / 'run'):
    pass
  assert (outside / 'file').read_text() == 'mine'


# Reading these would wait forever, or fill the memory.
@pytest.mark.parametrize('kind', ['pipe', 'device', 'folder'])
@pytest.mark.parametrize(
  'read',
  [
    metrics.read,
    json_files.read,
    cards.read,
    cards.sha256_of,
    weights.load,
    agent_files.read,
    digests.of_file,
    lambda path: workdirs.check_rules(path.parent, {'x': f'{path}'}),
  ],
)
def test_what_is_no_file_is_not_opened(
  kind: str, read: Callable[[pathlib.Path], Any], tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'x.npz'
  if kind == 'pipe':
    os.mkfifo(path)
  elif kind == 'device':
    path.symlink_to('/dev/zero')
  else:
    path.mkdir()
  reason = 'Is a folder' if kind == 'folder' else 'Is a pipe or a device'
  with pytest.raises(OSError, match=f'{reason}.*{path}'):
    read(path)


def test_pipes_and_devices_in_runs_are_refused(tmp_path: pathlib.Path) -> None:
  (tmp_path / 'checkpoints').mkdir()
  os.mkfifo(tmp_path / 'checkpoints' / 'x')
  for is_written in (True, False):
    with pytest.raises(workdirs.WorkdirError, match='checkpoints/x is a pipe'):
      files.check_tree(tmp_path, is_written=is_written)
  with pytest.raises(workdirs.WorkdirError, match='checkpoints/x is a pipe'):
    workdirs.locked(tmp_path).__enter__()


def test_large_files_of_json_are_refused(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'config.json'
  with path.open('wb') as file:
    file.truncate(2**26 + 1)
  with pytest.raises(workdirs.WorkdirError, match='more than 67,108,864 bytes'):
    json_files.read(path)


@pytest.mark.parametrize(
  'origin', ['x', {}, {'workdir': 'x', 'step': '../..'}, {'workdir': 1}]
)
def test_origins_of_forks_are_checked(
  origin: object, tmp_path: pathlib.Path
) -> None:
  json_files.write(tmp_path / 'config.json', {forks.KEY: origin})
  with pytest.raises(workdirs.WorkdirError, match='is damaged: forked_from is'):
    forks.describe(tmp_path, None, {}, (), 10)


def test_paths_that_lead_to_nothing_are_named(tmp_path: pathlib.Path) -> None:
  files.check_exists(tmp_path)
  (tmp_path / 'file').touch()
  files.check_exists(tmp_path / 'file')
  for path in (tmp_path / 'none', tmp_path / 'file/none'):
    with pytest.raises(FileNotFoundError, match=f'{path} does not exist. Why'):
      files.check_exists(path, 'Why.')
  with pytest.raises(ValueError, match='is no path: embedded null'):
    files.check_exists('a\0b')


def test_folders_that_hold_no_run_may_hold_several(
  tmp_path: pathlib.Path,
) -> None:
  def message(folder: str) -> str:
    with pytest.raises(workdirs.WorkdirError) as raised:
      workdirs.check_holds_run(tmp_path / folder, 'disco-rl x')
    return str(raised.value)

  assert 'none holds no run of disco-rl x: ' in message('none')
  (tmp_path / 'empty').mkdir()
  assert 'run of disco-rl x: it has no config.json' in message('empty')
  for name in 'ab':
    (tmp_path / 'sweep' / name).mkdir(parents=True)
    (tmp_path / 'sweep' / name / 'config.json').touch()
  assert message('sweep').endswith(
    'but folders of runs: name one, such as '
    f'{tmp_path}/sweep/a, {tmp_path}/sweep/b.'
  )
  workdirs.check_holds_run(tmp_path / 'sweep/a', 'disco-rl x')
