"""What launchers protect a process from, and what they refuse."""

import pathlib
import signal

from absl import flags
import launching
import pytest

from launch import fork
from launch import workdir

SDL = """
import os, signal, time
from absl import flags
from launch import start

flags.FLAGS(['launcher'])
start.begin(['launcher'])
import matplotlib.figure
from disco_rl.environments import registry

environment = registry.make('gymnasium/CartPole-v1', 1, 0, can_render=True)
environment.reset()
environment.render()
print('drawing', flush=True)
os.kill(os.getpid(), signal.SIGTERM)
environment.render()
time.sleep(1)
"""
LOGGING = """
import logging, sys
import numpy as np
from disco_rl.runtime import checkpointing

with checkpointing.Checkpointer(sys.argv[1]) as checkpointer:
  checkpointer.save(1, {'x': np.zeros(1)})
assert checkpointing.read(checkpointer._directory, {'x': np.zeros(1)})[0] == 1
logging.basicConfig(level=logging.INFO, format='mine: %(message)s')
logging.info('shown')
"""


def test_packages_that_draw_take_no_signals_and_need_no_backend() -> None:
  pytest.importorskip('pygame')
  ended = launching.run_python(
    '-c', SDL, MPLBACKEND='module://not_there', SDL_VIDEODRIVER='dummy'
  )
  assert 'drawing' in ended.stdout, ended.stderr
  assert ended.returncode == -signal.SIGTERM


def test_flags_of_paths_know_the_home_directory(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv('HOME', '/home/someone')
  for flag in (workdir.WORKDIR, fork.FROM):
    parse = flags.FLAGS[flag.name].parser.parse
    assert parse('~/run.npz') == '/home/someone/run.npz'
    assert parse('runs/~') == 'runs/~'


def test_logging_stays_with_the_caller(tmp_path: pathlib.Path) -> None:
  ended = launching.run_python('-c', LOGGING, f'{tmp_path / "checkpoints"}')
  assert ended.returncode == 0, ended.stderr
  assert 'mine: shown' in ended.stderr.splitlines()


def test_python_without_assertions_is_refused(tmp_path: pathlib.Path) -> None:
  ended = launching.run_python(
    '-m', 'launch.evaluate', f'--workdir={tmp_path}', PYTHONOPTIMIZE='1'
  )
  assert ended.returncode == 1
  assert ended.stderr.startswith('error: Python runs without assertions, by -O')
  assert len(ended.stderr.splitlines()) == 1
