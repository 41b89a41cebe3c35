"""Tests of launch.protocol: what is run, what is skipped, what is refused."""

import csv
import functools
import pathlib
from typing import Any

import launching
import pytest
import small

from disco_rl.evaluation import protocol_report
from disco_rl.evaluation import runner
from disco_rl.evaluation import sweep
from disco_rl.runtime import metrics
from launch import protocol

pytestmark = pytest.mark.usefixtures('quick_compilation')

# Names baselines with one setting each, so that few programs are compiled.
_CONFIG = """
import ml_collections
from configs import protocol

def get_config():
  config = protocol.get_config()
  config.update(
    seeds=2, unroll_length=4, batch_size=2, num_environments=2,
    replay_capacity=2, hidden_sizes=(4,), num_bins=5, log_every=1,
    validation_tasks='catch/3x3', validation_updates=1,
    test_tasks='catch/4x4,catch/6x5', score_after=(1, 2),
  )
  config.grids = ml_collections.ConfigDict({
    'given': {'learning_rate': (1e-3, 1e-2)},
    'actor_critic': {},
    'uniform': {'rule': ('actor_critic',), 'policy_cost': (0.0,)},
  })
  return config
"""


@pytest.fixture(scope='module')
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
  path = tmp_path_factory.mktemp('config') / 'tiny.py'
  path.write_text(_CONFIG)
  return f'--config={path}'


launch = functools.partial(launching.call, protocol)
RULES = '--rules=policy_gradient'


def test_a_part_is_run_and_reported(
  config: str, tmp_path: pathlib.Path
) -> None:
  workdir = tmp_path / 'run'
  one = '--config.grids.given.learning_rate=(1e-3,)'
  launch(workdir, config, RULES, one, '--tasks=catch/4x4')
  runs = {
    str(x.parent.relative_to(workdir)) for x in workdir.rglob('config.json')
  }
  of_test = {x for x in runs if x.startswith('catch-4x4/')}
  assert len(of_test) == 3
  # With one setting there is nothing to choose.
  assert runs == {'.', *of_test}
  with (workdir / 'scores.csv').open() as file:
    rows = list(csv.DictReader(file))
  # Two agents of three contenders, after one update and after two.
  assert len(rows) == 2 * 3 * 2
  assert {row['task'] for row in rows} == {'catch/4x4'}
  assert 'have finished: 1 of 2' in (workdir / 'report.md').read_text()


class _Fake:
  """A run of no time whose returns tell the settings apart."""

  made: list[tuple[str, float]] = []
  last = 100

  def __init__(self, config: runner.EvaluationConfig):
    self.config = config

  def run(self, workdir: pathlib.Path, description: dict[str, Any]) -> None:
    """Leaves what a run does; dies in the run of number `last`."""
    if len(self.made) == self.last:
      raise KeyboardInterrupt
    config = self.config
    self.made.append((config.environment, config.agent.learning_rate))
    workdir.mkdir(parents=True)
    rate = config.agent.learning_rate
    rows = [
      {
        'update': update,
        'seed': seed,
        'environment_steps': update * config.steps_per_update,
        'return': rate * update,
      }
      for update in range(1, config.updates + 1)
      for seed in range(config.seeds)
    ]
    with metrics.MetricsWriter(workdir, resume_from=0) as writer:
      writer.write(rows)
    metrics.write_json(workdir / 'config.json', description)
    metrics.write_json(workdir / 'summary.json', {'updates': config.updates})

  def close(self) -> None:
    """As of an `Evaluation`."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[_Fake]:
  monkeypatch.setattr(_Fake, 'made', [])
  monkeypatch.setattr(_Fake, 'last', 100)
  monkeypatch.setattr(sweep.runner, 'Evaluation', _Fake)
  return _Fake


def test_a_protocol_that_was_killed_goes_on(
  config: str,
  tmp_path: pathlib.Path,
  fake: type[_Fake],
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  reported: list[set[str]] = []
  monkeypatch.setattr(
    protocol_report,
    'write',
    lambda plan, _: reported.append({x.name for x in plan.contenders}),
  )
  fake.last = 4
  with pytest.raises(KeyboardInterrupt):
    launch(tmp_path, config, RULES)
  assert not reported
  fake.last = 100
  launch(tmp_path, config, RULES)
  # Both settings in validation, then the better one alone.
  assert fake.made[:4] == [
    ('catch/3x3', 1e-3),
    ('catch/3x3', 1e-2),
    ('catch/4x4', 1e-2),
    ('catch/6x5', 1e-2),
  ]
  assert len(fake.made) == 2 + 2 * 3
  launch(tmp_path, config, RULES)
  assert len(fake.made) == 2 + 2 * 3
  # A further rule adds its runs; others stay.
  small.save(tmp_path / 'mine.npz', small.arrays())
  launch(tmp_path, config, f'{RULES},{tmp_path / "mine.npz"}')
  assert len(fake.made) == 2 * (2 + 2) + 2 * 2
  assert len(reported) == 3
  assert reported[-1] - reported[0] == {'mine'}


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--rules='], '--rules is empty'),
    ([RULES, '--config.updates=9'], 'Unknown setting'),
    ([RULES, '--config.log_every=2'], 'no multiple of log_every=2'),
    ([RULES, '--tasks=catch/5x6'], "'catch/5x6', which is no test"),
    (['--rules=no_such_rule'], "Unknown rule 'no_such_rule'"),
    (['--rules=actor_critic'], 'Two contenders are called actor_critic'),
    ([RULES, '--config.test_tasks=cach/4x4'], "Unknown environment 'cach/4x4'"),
    ([RULES, '--config.by_family.minatar.unrol=3'], 'unrol'),
    ([RULES, '--config.grids.given.learning_rate=(-1.0,)'], 'must be positive'),
  ],
)
def test_what_is_wrong_is_said_before_anything_runs(
  config: str,
  arguments: list[str],
  message: str,
  tmp_path: pathlib.Path,
  fake: type[_Fake],
) -> None:
  with pytest.raises(SystemExit) as caught:
    launch(tmp_path, config, *arguments)
  assert message in launching.message_of(caught.value)
  assert not fake.made
  assert not (tmp_path / 'config.json').exists()


def test_processes_share_the_runs(
  config: str, tmp_path: pathlib.Path, fake: type[_Fake]
) -> None:
  # Of validation, as the process that started them lets no test begin before.
  launch(tmp_path, config, RULES, '--part=1,2')
  assert fake.made == [('catch/3x3', 1e-2)]
  launch(tmp_path, config, RULES, '--part=0,2')
  assert len(fake.made) == 2
  for part in ('0,2', '1,2'):
    launch(tmp_path, config, RULES, f'--part={part}')
  assert len(fake.made) == 2 + 2 * 3
  assert not (tmp_path / 'report.md').exists()
