"""Launchers whose standard streams are closed, and that are interrupted."""

import os
import pathlib
import signal
import subprocess
import sys

import launching
import pytest

# Programs inherit it if interrupts are ignored.
pytestmark = pytest.mark.usefixtures('foreground')

# A launcher that prints more than buffers hold, then leaves a file.
PRINTING = """
import pathlib, sys
from launch import common

def main(settings, workdir):
  with (workdir / 'data').open('w') as data:
    print('lost', file=data)
    for stream in (sys.stderr, sys.stdout):
      print('x' * 10**5, file=stream, flush=True)
    assert data.fileno() > 2
  print('y' * 10**5)
  sys.exit(7)

common.run(main)
"""
LISTING = """
import sys
from disco_rl import __main__

sys.argv[1:] = ['list-environments']
__main__.main()
"""
HELPING = LISTING.replace('list-environments', 'help')
INTERRUPTED = """
import os, signal
from launch import common

def main(settings, workdir):
  try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
      pass
  except KeyboardInterrupt:
    print('swallowed')

common.run(main)
"""


def run(
  program: str,
  workdir: pathlib.Path,
  redirection: str = '',
  stdout: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
  command = f'exec "$@" {redirection}'
  flags = ('--config=configs/quickstart.py', f'--workdir={workdir}')
  flags = flags if 'common.run' in program else ()
  return subprocess.run(
    ['sh', '-c', command, 'sh', sys.executable, '-c', program, *flags],
    cwd=launching.REPOSITORY,
    stdout=stdout,
    stderr=subprocess.PIPE,
    text=True,
  )


def test_files_never_get_the_messages_for_closed_streams(
  tmp_path: pathlib.Path,
) -> None:
  assert run(PRINTING, tmp_path, '<&- >&- 2>&-').returncode == 7
  assert (tmp_path / 'data').read_text() == 'lost\n'


@pytest.mark.parametrize('program', [LISTING, HELPING])
def test_a_reader_that_goes_away(tmp_path: pathlib.Path, program: str) -> None:
  reader, writer = os.pipe()
  os.close(reader)
  ended = run(program, tmp_path, stdout=writer)
  os.close(writer)
  assert (ended.returncode, ended.stderr) == (1, '')


def test_other_streams_get_everything(tmp_path: pathlib.Path) -> None:
  ended = run(PRINTING, tmp_path)
  assert ended.stderr == 'x' * 10**5 + '\n'
  assert ended.stdout == 'x' * 10**5 + '\n' + 'y' * 10**5 + '\n'


def test_an_interrupt_ends_the_program_at_once(tmp_path: pathlib.Path) -> None:
  ended = run(INTERRUPTED, tmp_path)
  assert ended.returncode == -signal.SIGINT
  assert not ended.stdout
