"""Tests of summaries: damage to metrics is noticed after a run has ended."""

import json
import pathlib
from typing import Any
import zlib

import pytest

from disco_rl.runtime import digests
from disco_rl.runtime import files

ROWS = 'update,seed,environment_steps,return\n1,0,10,0.5\n2,0,20,0.75\n'


@pytest.fixture
def workdir(tmp_path: pathlib.Path) -> pathlib.Path:
  """Folder of a training that has ended after two updates."""
  (tmp_path / 'metrics.csv').write_text(ROWS)
  digests.write_summary(tmp_path, {'updates': 2})
  return tmp_path


def edit_summary(workdir: pathlib.Path, **changes: Any) -> None:
  path = workdir / 'summary.json'
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_summary_holds_sizes_and_checksums(workdir: pathlib.Path) -> None:
  summary = json.loads((workdir / 'summary.json').read_text())
  content = ROWS.encode()
  assert summary == {
    'updates': 2,
    'digests': {'metrics.csv': [len(content), zlib.crc32(content)]},
  }
  digests.check_summary(workdir)


def test_a_flipped_bit_is_noticed_wherever_it_is(workdir: pathlib.Path) -> None:
  path = workdir / 'metrics.csv'
  content = ROWS.encode()
  for i in range(len(content)):
    flipped = bytearray(content)
    flipped[i] ^= 1 << i % 8
    path.write_bytes(flipped)
    with pytest.raises(files.WorkdirError, match='metrics.csv has changed'):
      digests.check_summary(workdir)


def test_rows_of_a_longer_run_do_not_matter(workdir: pathlib.Path) -> None:
  (workdir / 'metrics.csv').write_text(ROWS + '3,0,30,1\n')
  digests.check_summary(workdir)


@pytest.mark.parametrize('content', [None, '', ROWS[:-1]])
def test_lost_rows_are_noticed(
  workdir: pathlib.Path, content: str | None
) -> None:
  path = workdir / 'metrics.csv'
  path.unlink()
  if content is not None:
    path.write_text(content)
  with pytest.raises(files.WorkdirError, match="delete the run's folder"):
    digests.check_summary(workdir)


@pytest.mark.parametrize('recorded', [[58], [58, 0, 1], 3, 'ab'])
def test_a_damaged_digest_is_no_traceback(
  workdir: pathlib.Path, recorded: Any
) -> None:
  edit_summary(workdir, digests={'metrics.csv': recorded})
  with pytest.raises(files.WorkdirError, match='according to summary.json'):
    digests.check_summary(workdir)
  edit_summary(workdir, digests=[recorded])
  with pytest.raises(files.WorkdirError, match='according to summary.json'):
    digests.check_summary(workdir)


def test_older_runs_and_those_that_go_on_are_not_checked(
  workdir: pathlib.Path,
) -> None:
  (workdir / 'metrics.csv').write_text(ROWS[:-1])
  edit_summary(workdir, digests={})
  digests.check_summary(workdir)
  (workdir / 'summary.json').write_text('{"updates": 2}')
  digests.check_summary(workdir)
  (workdir / 'summary.json').unlink()
  digests.check_summary(workdir)
