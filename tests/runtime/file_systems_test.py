"""File systems that lack what disks do, and full ones."""

import errno
import fcntl
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any
from unittest import mock

import launching
import pytest

from disco_rl.runtime import checkpointing
from disco_rl.runtime import file_systems
from disco_rl.runtime import files
from disco_rl.runtime import row_log
from launch import errors


def failing(code: int) -> mock.Mock:
  return mock.Mock(side_effect=OSError(code, os.strerror(code)))


def test_a_disk_can_do_all_and_nothing_remains(tmp_path: pathlib.Path) -> None:
  abilities = file_systems.probe(tmp_path)
  file_systems.check_mapping(tmp_path / 'replay')
  assert abilities == file_systems.Abilities(flushes=True, locks=True)
  assert launching.contents(tmp_path) == {}


@pytest.mark.parametrize(
  ('where', 'name', 'what'),
  [
    (os, 'replace', 'replace files'),
    (pathlib.Path, 'rename', 'rename folders'),
    (mmap, 'mmap', 'map files into memory'),
  ],
)
def test_what_runs_need_is_found_before_they_begin(
  where: Any,
  name: str,
  what: str,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(where, name, failing(errno.EPERM))
  with pytest.raises(files.WorkdirError, match=f'{what} .*not permitted') as e:
    file_systems.probe(tmp_path)
    file_systems.check_mapping(tmp_path)
  assert 'full' not in str(e.value)
  assert launching.contents(tmp_path) == {}
  monkeypatch.setattr(where, name, failing(errno.EDQUOT))
  with pytest.raises(OSError, match=f'quota exceeded: .*{tmp_path}'):
    file_systems.probe(tmp_path)
    file_systems.check_mapping(tmp_path)


def test_a_disk_that_nobody_may_write_to_is_named(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(pathlib.Path, 'write_bytes', failing(errno.EROFS))
  with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
    file_systems.check_mapping(tmp_path)


def test_both_kinds_of_locks_are_tried_one_after_the_other(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """On NFS one excludes the other."""
  held: set[str] = set()

  def lock(kind: str, operation: int) -> None:
    held.clear() if operation & fcntl.LOCK_UN else held.add(kind)
    if len(held) > 1:
      raise BlockingIOError

  for kind in ('flock', 'lockf'):
    monkeypatch.setattr(
      fcntl, kind, lambda _, operation, kind=kind: lock(kind, operation)
    )
  assert file_systems.probe(tmp_path).locks


def test_only_full_disks_are_called_full() -> None:
  full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  wrapped = ValueError('Error writing "x"')
  wrapped.__cause__ = full
  of_library = ValueError("Failed writing: no [os_error_code='122']")
  for error in (full, wrapped, of_library):
    assert file_systems.is_full(error)
  for error in (OSError(errno.EINVAL, 'no'), ValueError('disk is broken')):
    assert not file_systems.is_full(error)


def test_the_disk_is_not_blamed_for_other_errors(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  causes = {
    'Invalid argument': OSError(errno.EINVAL, os.strerror(errno.EINVAL)),
    'the disk is full': ValueError("Failed: [os_error_code='28']"),
  }
  for cause, error in causes.items():
    with checkpointing.Checkpointer(tmp_path / 'checkpoints') as checkpointer:
      manager = checkpointer._manager
      monkeypatch.setattr(manager, 'save', mock.Mock(side_effect=error))
      with pytest.raises(checkpointing.CheckpointError, match=cause) as raised:
        checkpointer.save(1, {})
      assert ('full' in str(raised.value)) == ('full' in cause)


def test_errors_of_replay_end_a_launcher_with_one_line() -> None:
  assert row_log.RowLogError in errors.of_runs()


# Preloaded, it makes requests fail in the whole process, also in C++.
_LIMITED = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <stdarg.h>
int fsync(int fd) { errno = EINVAL; return -1; }
int fdatasync(int fd) { errno = EINVAL; return -1; }
int flock(int fd, int operation) { errno = ENOTSUP; return -1; }
int fcntl64(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  long argument = va_arg(rest, long);
  if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
      command == F_OFD_SETLKW) { errno = ENOTSUP; return -1; }
  return syscall(SYS_fcntl, fd, command, argument);
}
int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  return fcntl64(fd, command, va_arg(rest, long));
}
"""
_SAVING = """
import pathlib, sys
import numpy as np
from disco_rl.runtime import checkpointing, metrics, workdirs
run = pathlib.Path(sys.argv[1])
tree = {'a': np.arange(3)}
with workdirs.locked(run), metrics.MetricsWriter(run) as writer:
  with checkpointing.Checkpointer(run / 'checkpoints') as checkpointer:
    writer.write([{'update': 1, 'seed': 0}])
    checkpointer.save(1, tree)
  with checkpointing.Checkpointer(run / 'checkpoints') as checkpointer:
    print(checkpointer.restore({'a': np.zeros(3, int)}))
"""


@pytest.mark.skipif(
  sys.platform != 'linux' or shutil.which('cc') is None,
  reason='needs Linux and a compiler of C',
)
def test_checkpoints_where_nothing_is_flushed_or_locked(
  tmp_path: pathlib.Path,
) -> None:
  source, library = tmp_path / 'limited.c', tmp_path / 'limited.so'
  source.write_text(_LIMITED)
  compiling = ['cc', '-shared', '-fPIC', '-w', source, '-o', library]
  subprocess.run(compiling, check=True)
  ran = launching.run_python(
    *('-c', _SAVING, f'{tmp_path / "run"}'), LD_PRELOAD=f'{library}'
  )
  assert ran.returncode == 0, ran.stderr
  assert ran.stdout == "(1, {'a': array([0, 1, 2])})\n"
  locks, flushing = ran.stderr.splitlines()
  assert 'cannot be locked (Operation not supported)' in locks
  assert 'cannot flush files to the disk' in flushing
