"""launch/completion.bash: what Tab completes."""

import os
import pathlib
import shutil
import subprocess
import sys

import launching
import pytest

pytestmark = pytest.mark.skipif(
  shutil.which('bash') is None, reason='there is no bash'
)

_DISCO_RL = pathlib.Path(sys.executable).with_name('disco-rl')
# Completes a command line twice, the cursor at its end; prints on the standard
# error stream when the help is asked for.
SCRIPT = """
source launch/completion.bash
eval "original_$(declare -f _disco_rl_flags)"
_disco_rl_flags() { echo asked >&2; original__disco_rl_flags "$@"; }
COMP_LINE=$1 COMP_POINT=${#1}
for _ in 1 2; do COMPREPLY=(); _disco_rl; done
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(line: str) -> tuple[list[str], int]:
  """Completions of a command, and how often the help was asked for."""
  done = subprocess.run(
    ['bash', '-c', SCRIPT, 'bash', line],
    cwd=launching.REPOSITORY,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=True,
  )
  return sorted(done.stdout.split()), done.stderr.count('asked')


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    ('python -m launch.tr', ['launch.train']),
    ('python -m launch.co', ['launch.compare']),
    (
      'python -m launch.train --config=configs/disco',
      ['configs/disco103.py', 'configs/disco57.py'],
    ),
    ('python -m launch.train --workdir=runs --config=conf', ['configs/']),
    (f'{_DISCO_RL} tr', ['train']),
    (f'{_DISCO_RL} train --config=ca', ['cartpole', 'catch']),
    (f'{_DISCO_RL} train runs', []),
    ('python -m pytest --con', []),
    ('python launch', []),
  ],
)
def test_what_needs_no_help(line: str, expected: list[str]) -> None:
  assert complete(line) == (expected, 0)


def test_flags_and_settings_are_those_of_the_help() -> None:
  python = sys.executable
  command = f'{python} -m launch.meta_train --config=configs/quickstart.py'
  found, asked = complete(f'{command} --config.meta_')
  assert asked == 1
  assert {'--config.meta_steps=', '--config.meta_learning_rate='} <= {*found}
  assert all(x.startswith('--config.meta_') for x in found)
  flags, _ = complete(f'{python} -m launch.compare --')
  assert {'--labels=', '--output=', '--import=', '--helpfull='} == {*flags}
