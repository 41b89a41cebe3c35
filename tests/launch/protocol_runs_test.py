"""Tests of launch.protocol: what is run, what is skipped, what is refused."""

import csv
import functools
import pathlib

import launching
from pretending import Pretended
import pytest
import small

from disco_rl.evaluation import protocol_report
from launch import protocol

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
  config: str, tmp_path: pathlib.Path, pretended: Pretended
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


def test_a_protocol_that_was_disturbed_continues(
  config: str,
  tmp_path: pathlib.Path,
  pretended: Pretended,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  reported: list[set[str]] = []
  monkeypatch.setattr(
    protocol_report,
    'write',
    lambda plan, _: reported.append({x.name for x in plan.contenders}),
  )
  pretended.die_in(4)
  message = launching.error(protocol, tmp_path, config, RULES)
  assert '4 of 6 runs are not over: ' in message
  assert not reported
  pretended.die_in(100)
  launch(tmp_path, config, RULES)
  # Both settings in validation, then the better one alone.
  assert pretended.made[:4] == [
    'catch/3x3 policy_gradient 0.001',
    'catch/3x3 policy_gradient 0.01',
    'catch/4x4 policy_gradient 0.01',
    'catch/6x5 policy_gradient 0.01',
  ]
  assert len(pretended.made) == 2 + 2 * 3
  launch(tmp_path, config, RULES, '--processes=2')
  assert len(pretended.made) == 2 + 2 * 3
  # A further rule adds its runs; others stay.
  small.save(tmp_path / 'mine.npz', small.arrays())
  rules = f'{RULES},{tmp_path / "mine.npz"}'
  launch(tmp_path, config, rules, '--processes=2')
  assert len(pretended.made) == 2 * (2 + 2) + 2 * 2
  assert len(reported) == 3
  assert reported[-1] - reported[0] == {'mine'}


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--rules='], '--rules is empty'),
    ([RULES, '--config.updates=9'], 'Unknown setting'),
    ([RULES, '--config.log_every=2'], 'not a multiple of log_every=2'),
    ([RULES, '--tasks=catch/5x6'], "'catch/5x6', which is not a test"),
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
  pretended: Pretended,
) -> None:
  assert message in launching.error(protocol, tmp_path, config, *arguments)
  assert not pretended.made
  assert not (tmp_path / 'config.json').exists()
