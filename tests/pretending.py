"""Fake workers, which write the files of runs without learning."""

import pathlib

import pytest

from launch import scheduler

# Returns are close to the learning rate; at 0.5 the loss is not finite.
_WORKER = """
import json, os, pathlib, random, sys
made, last = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for line in sys.stdin:
  if len(made.read_text().splitlines()) == last:
    os.kill(os.getpid(), 9)
  task = json.loads(line)
  folder, settings = pathlib.Path(task['folder']), task['settings']
  folder.mkdir(parents=True)
  rate = settings['learning_rate']
  with made.open('a') as file:
    print(settings['environment'], settings['rule'], rate, file=file)
  (folder / 'config.json').write_text(json.dumps(settings))
  if rate == 0.5:
    reason = 'loss of seed 0 became non-finite.'
    (folder / 'failure.json').write_text(json.dumps({'reason': reason}))
    print(json.dumps(reason), flush=True)
    continue
  random.seed(made.stat().st_size)
  steps = settings['num_environments'] * settings['unroll_length']
  rows = ['update,seed,environment_steps,return']
  for update in range(1, settings['updates'] + 1):
    for seed in range(settings['seeds']):
      score = rate + 0.001 * random.random()
      rows.append(f'{update},{seed},{steps * update},{score}')
  (folder / 'metrics.csv').write_text('\\n'.join(rows) + '\\n')
  summary = {'updates': settings['updates']}
  (folder / 'summary.json').write_text(json.dumps(summary))
  print('null', flush=True)
"""


class Pretended:
  """Fake workers, one of which may die, and the runs they have made."""

  def __init__(self, path: pathlib.Path, patch: pytest.MonkeyPatch):
    self._path, self._patch = path, patch
    path.touch()
    self.die_in(100)

  def die_in(self, number: int) -> None:
    """Makes the worker die that gets the run with this number."""
    worker = ('-S', '-c', _WORKER, str(self._path), str(number))
    self._patch.setattr(scheduler, 'WORKER', worker)

  @property
  def made(self) -> list[str]:
    """The environments, rules and learning rates of the runs."""
    return self._path.read_text().splitlines()
