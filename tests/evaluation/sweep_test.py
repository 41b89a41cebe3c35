"""Tests of sweeps: what is run, what is skipped, and what is reported."""

import dataclasses
import pathlib
import re
import shutil
from typing import Any
from unittest import mock

import evaluating
import launching
import numpy as np
import pytest
import scipy.stats

from configs import evaluate as configs
from disco_rl.environments import registry
from disco_rl.evaluation import comparison
from disco_rl.evaluation import report
from disco_rl.evaluation import runner
from disco_rl.evaluation import sweep
from disco_rl.evaluation import training
from disco_rl.runtime import checkpointing
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.update_rules import sources
from launch import evaluate
from launch import to_records

pytestmark = pytest.mark.usefixtures('quick_compilation')

ENVIRONMENTS = ('catch/4x3', 'catch/3x3')
RULES = ('actor_critic', 'policy_gradient')
TWO_RUNS = (*evaluating.CATCH, f'--config.rules={",".join(RULES)}')
FOUR_RUNS = (*TWO_RUNS, f'--config.environments={",".join(ENVIRONMENTS)}')
FOLDERS = [f'catch-4x3/{rule}/0.01' for rule in RULES]


@dataclasses.dataclass
class Interrupted:
  """A sweep that was interrupted in its second run, and resumed."""

  workdir: pathlib.Path
  updates_after: int = 0


@pytest.fixture(scope='module')
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
  """To be read only."""
  sweep_run = Interrupted(tmp_path_factory.mktemp('sweep') / 'new')
  save, attempt = (
    checkpointing.Checkpointer.save,
    training.DeviceTraining.attempt,
  )
  saved = 0

  def save_and_die(self: Any, step: int, tree: Any) -> None:
    nonlocal saved
    save(self, step, tree)
    saved += 1
    # Each run saves at updates 10 and 20.
    if saved == 3:
      raise KeyboardInterrupt

  def counted(
    self: Any, params: Any, train_state: Any, num_updates: int, stop: Any
  ) -> Any:
    sweep_run.updates_after += num_updates
    return attempt(self, params, train_state, num_updates, stop)

  with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(checkpointing.Checkpointer, 'save', save_and_die)
    evaluating.launch(sweep_run.workdir, *TWO_RUNS)
  assert not (sweep_run.workdir / 'report.md').exists()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training.DeviceTraining, 'attempt', counted)
    evaluating.launch(sweep_run.workdir, *TWO_RUNS)
  return sweep_run


def test_an_interrupted_sweep_repeats_nothing(resumed: Interrupted) -> None:
  # The second half of the second run.
  assert resumed.updates_after == 10
  for folder in FOLDERS:
    run = resumed.workdir / folder
    assert {path.name for path in run.iterdir()} == evaluating.FILES
    columns = metrics.read(run / 'metrics.csv')
    assert columns['update'].tolist() == [5, 5, 10, 10, 15, 15, 20, 20]


def test_a_finished_sweep_runs_nothing(
  resumed: Interrupted,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  fail = mock.Mock(side_effect=AssertionError('a run is repeated'))
  monkeypatch.setattr(runner, 'Evaluation', fail)
  workdir = shutil.copytree(resumed.workdir, tmp_path / 'sweep')
  before = launching.contents(workdir)
  evaluating.launch(workdir, *TWO_RUNS)
  assert launching.contents(workdir) == before
  printed = capsys.readouterr()
  assert printed.out == f'{workdir / "report.md"}\n'
  # Seeds x updates x environments x transitions, of each run.
  assert (
    '2 runs: environments 1 x rules 2 x learning rates 1. Each: 2 agents x 20 '
    'updates = 480 environment steps; in all 960. 2 are over, 0 begun.'
  ) in printed.err
  assert 'Run ' not in printed.err


def test_each_run_equals_a_single_run(
  resumed: Interrupted, tmp_path: pathlib.Path
) -> None:
  evaluating.launch(tmp_path / 'run', *evaluating.CATCH)
  for name in ('metrics.csv', 'config.json'):
    alone = (tmp_path / 'run' / name).read_text()
    assert (resumed.workdir / FOLDERS[0] / name).read_text() == alone


def test_a_sweep_that_is_over_notices_one_bit(
  resumed: Interrupted, tmp_path: pathlib.Path
) -> None:
  workdir = shutil.copytree(resumed.workdir, tmp_path / 'sweep')
  path = workdir / FOLDERS[1] / 'metrics.csv'
  content = bytearray(path.read_bytes())
  content[-2] ^= 1  # A digit, which becomes another.
  assert bytes(content[-2:-1]).isdigit()
  path.write_bytes(content)
  message = evaluating.error(workdir, *TWO_RUNS)
  assert f'{path} is not as it was when its run ended' in message
  assert "Restore the file, or delete the run's folder" in message


def test_the_html_report_contains_its_figures(resumed: Interrupted) -> None:
  text = (resumed.workdir / 'report.html').read_text()
  sources = re.findall('src="([^"]{0,30})', text)
  assert len(sources) == 4
  assert {source[:22] for source in sources} == {'data:image/png;base64,'}
  assert 'http' not in text
  figures = re.findall(
    r'\]\((.*png)\)', (resumed.workdir / 'report.md').read_text()
  )
  assert len(figures) == 4
  for figure in figures:
    assert (resumed.workdir / figure).read_bytes().startswith(b'\x89PNG')


class Pretended:
  """Writes the files of a run without training; fails at a rate of 0.5."""

  started: list[runner.EvaluationConfig] = []

  def __init__(self, config: runner.EvaluationConfig):
    self._config = config

  def run(self, workdir: pathlib.Path, description: Any) -> None:
    self.started.append(self._config)
    workdir.mkdir(parents=True)
    metrics.write_json(workdir / 'config.json', description)
    rate = self._config.agent.learning_rate
    if rate == 0.5:
      raise metrics.NonFiniteError('loss of seed 0 became non-finite.')
    rng = np.random.default_rng(len(self.started))
    with metrics.MetricsWriter(workdir) as writer:
      for update in (10, self._config.updates):
        writer.write(self._rows(update, rng.normal(rate, 0.01, size=2)))
    summary = {'updates': self._config.updates}
    metrics.write_json(workdir / 'summary.json', summary)

  def close(self) -> None:
    pass

  def _rows(self, update: int, returns: np.ndarray) -> list[dict[str, Any]]:
    return [
      {
        'update': update,
        'seed': seed,
        'environment_steps': update * self._config.steps_per_update,
        'return': of_seed,
      }
      for seed, of_seed in enumerate(returns)
    ]


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> type[Pretended]:
  monkeypatch.setattr(runner, 'Evaluation', Pretended)
  monkeypatch.setattr(Pretended, 'started', [])
  return Pretended


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[comparison.Result]:
  """The results to report; drawing the report would take longest."""
  results: list[comparison.Result] = []

  def record(given: list[comparison.Result], *_: Any) -> None:
    results[:] = given

  monkeypatch.setattr(report, 'write', record)
  return results


def final_scores(workdir: pathlib.Path, rule: str, rate: str) -> np.ndarray:
  """From metrics.csv, independently of the report: [agents, environments]."""
  columns = []
  for environment in ENVIRONMENTS:
    path = workdir / environment.replace('/', '-') / rule / rate
    header, *rows = (path / 'metrics.csv').read_text().splitlines()
    names = header.split(',')
    last = [
      dict(zip(names, row.split(','))) for row in rows if row.startswith('20,')
    ]
    columns.append([(float(row['return']) + 1) / 2 for row in last])
  return np.array(columns).T


def test_the_report_agrees_with_the_metrics(
  pretended: type[Pretended], tmp_path: pathlib.Path
) -> None:
  evaluating.launch(tmp_path, *FOUR_RUNS, '--config.learning_rates=0.1,0.7,0.3')
  assert len(pretended.started) == 12
  summary = metrics.read_json(tmp_path / 'summary.json')
  assert (summary['agents'], summary['updates']) == (2, 20)
  assert summary['environment_steps'] == 240
  (catch,) = summary['benchmarks'].values()
  assert catch['environments'] == list(ENVIRONMENTS)
  assert not catch['problems']
  text = (tmp_path / 'report.md').read_text()
  # Returns are about the learning rate.
  assert {of['learning_rate'] for of in catch['rules'].values()} == {0.7}
  assert 'one of 3 learning rates with its highest IQM' in text
  for rule, by_rate in catch['iqm_by_learning_rate'].items():
    for rate, estimate in by_rate.items():
      values = final_scores(tmp_path, rule, rate).ravel()
      expected = scipy.stats.trim_mean(values, 0.25)
      assert estimate['value'] == pytest.approx(expected, abs=1e-5)
  scores = {rule: final_scores(tmp_path, rule, '0.7') for rule in RULES}
  for rule, of_rule in scores.items():
    aggregates = {
      'iqm': scipy.stats.trim_mean(of_rule.ravel(), 0.25),
      'mean': of_rule.mean(),
      'median': np.median(of_rule.mean(axis=0)),
      'optimality_gap': 1 - np.minimum(of_rule, 1).mean(),
    }
    for name, value in aggregates.items():
      estimate = catch['rules'][rule][name]
      assert estimate['value'] == pytest.approx(value, abs=1e-5)
      low, high = estimate['ci95']
      assert of_rule.min() <= low <= value <= high or name == 'optimality_gap'
      assert f'{value:#.3g} [{low:#.3g}, {high:#.3g}]' in text
    for i, environment in enumerate(ENVIRONMENTS):
      returns = catch['rules'][rule]['returns'][environment]
      np.testing.assert_allclose(
        returns['per_seed'], 2 * of_rule[:, i] - 1, atol=1e-5
      )
  x, y = scores.values()
  wins = x[:, None] - y[None, :]
  (improvement,) = catch['probability_of_improvement']
  assert improvement['value'] == pytest.approx(
    np.mean((wins > 0) + 0.5 * (wins == 0))
  )


def test_a_diverging_run_does_not_end_the_others(
  pretended: type[Pretended],
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  arguments = (*FOUR_RUNS, '--config.learning_rates=0.1,0.5,0.2')
  message = evaluating.error(tmp_path, *arguments)
  assert '4 of 12 runs failed' in message
  assert 'catch/4x3, actor_critic, learning rate 0.5' in message
  assert len(pretended.started) == 12
  cost, *lines = capsys.readouterr().err.splitlines()
  assert 'in all 5,760. 0 are over, 0 begun.' in cost
  assert lines[0] == 'Run 1 of 12: catch/4x3, actor_critic, learning rate 0.1'
  assert re.match('Run 12 of 12, about 0:00:0[0-9] left: catch/3x3', lines[-1])
  text = (tmp_path / 'report.md').read_text()
  assert text.count('loss of seed 0 became non-finite.') == 4
  summary = metrics.read_json(tmp_path / 'summary.json')
  for rule in summary['benchmarks']['catch']['rules'].values():
    assert rule['learning_rate'] == 0.2
  # Neither finished nor failed runs are repeated.
  evaluating.error(tmp_path, *arguments)
  assert len(pretended.started) == 12


def test_lists_of_a_sweep_can_change_and_other_settings_cannot(
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
) -> None:
  evaluating.launch(tmp_path, *FOUR_RUNS)
  evaluating.launch(tmp_path, *FOUR_RUNS, '--config.rules=policy_gradient')
  assert len(pretended.started) == 4
  # The report covers the runs of this command only.
  assert {result.rule for result in reported} == {'policy_gradient'}
  evaluating.launch(
    tmp_path, *FOUR_RUNS, '--config.environments=catch/4x3,catch'
  )
  environments = [config.environment for config in pretended.started[4:]]
  assert environments == ['catch', 'catch']
  before = launching.contents(tmp_path)
  message = evaluating.error(tmp_path, *FOUR_RUNS, '--config.seeds=3')
  assert 'seeds was 2, is 3' in message
  assert launching.contents(tmp_path) == before


def test_one_list_is_enough_and_suites_are_expanded(
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
) -> None:
  evaluating.launch(
    tmp_path,
    *evaluating.CATCH,
    '--config.environments=gridworld_held_out, catch/5x5',
  )
  names = [config.environment for config in pretended.started]
  assert len(names) == 19
  assert names[-1] == 'catch/5x5'
  assert {config.rule for config in pretended.started} == {'actor_critic'}
  assert [result.environment for result in reported] == names


@pytest.mark.parametrize(
  ('given', 'rules'), [({}, []), ({'rules': ','.join(RULES)}, [*RULES])]
)
def test_a_config_without_lists(
  given: dict[str, str],
  rules: list[str],
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """A file of settings that has those of one run only."""
  settings = configs.get_config().to_dict()
  lacking = {x: v for x, v in settings.items() if x not in to_records.SWEPT}
  single: list[pathlib.Path] = []
  monkeypatch.setattr(evaluate, '_run_one', lambda _, path: single.append(path))
  evaluate.main({**lacking, **given}, tmp_path)
  assert single == ([] if given else [tmp_path])
  assert [config.rule for config in pretended.started] == rules


def test_a_missing_package_is_found_before_anything_starts(
  pretended: type[Pretended],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  validate = registry.validate

  def without_package(name: str) -> None:
    if name == 'catch/3x3':
      raise ImportError("needs pip install -e '.[three]'")
    validate(name)

  monkeypatch.setattr(registry, 'validate', without_package)
  workdir = tmp_path / 'new'
  assert 'three' in evaluating.error(workdir, *FOUR_RUNS)
  assert not pretended.started
  assert not workdir.exists()


def test_the_folder_of_a_single_run_is_left_alone(
  pretended: type[Pretended], tmp_path: pathlib.Path
) -> None:
  (tmp_path / 'metrics.csv').touch()
  assert 'contains a single run' in evaluating.error(tmp_path, *FOUR_RUNS)
  assert not pretended.started


def test_two_sweeps_in_one_folder(
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
) -> None:
  with workdirs.locked(tmp_path):
    message = evaluating.error(tmp_path, *FOUR_RUNS)
  assert 'in use by another run' in message
  assert not pretended.started
  assert {path.name for path in tmp_path.iterdir()} == {'.lock', '.owner'}
  evaluating.launch(tmp_path, *FOUR_RUNS)
  assert len(pretended.started) == 4


def test_rules_have_short_names_unless_several_would_have_one() -> None:
  names = {
    'general': 'general',
    'runs/first/rule.npz': 'first',
    'rule.npz': 'rule',
    'runs/second/mine.npz': 'mine',
    'a/same/rule.npz': 'a/same/rule.npz',
    'b/same/rule.npz': 'b/same/rule.npz',
  }
  assert sweep.labels([*names]) == names


def test_a_changed_file_of_weights_is_another_rule(
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(sweep, 'validate', lambda _: None)
  path = tmp_path / 'mine' / 'rule.npz'
  path.parent.mkdir()
  shutil.copy(sources.SHIPPED / 'general.npz', path)
  arguments = (*FOUR_RUNS, f'--config.rules={path},actor_critic')
  evaluating.launch(tmp_path / 'sweep', *arguments)
  evaluating.launch(tmp_path / 'sweep', *arguments)
  assert len(pretended.started) == 4
  # Named by the run that wrote it.
  assert {result.rule for result in reported} == {'mine', 'actor_critic'}
  shutil.copy(sources.SHIPPED / 'imitation.npz', path)
  message = evaluating.error(tmp_path / 'sweep', *arguments)
  assert f'{path} changed since' in message


# Settings that follow the rule.


@pytest.mark.parametrize(
  'flags, rates',
  [
    ((), ('0.01', '0.005')),
    (('--config.learning_rate=0.03',), ('0.03', '0.03')),
    (('--config.learning_rates=0.04',), ('0.04', '0.04')),
  ],
)
def test_settings_follow_the_rule_unless_a_flag_sets_them(
  pretended: type[Pretended],
  reported: list[comparison.Result],
  tmp_path: pathlib.Path,
  flags: tuple[str, ...],
  rates: tuple[str, ...],
) -> None:
  workdir = tmp_path / 'sweep'
  config = f'--config={launching.REPOSITORY}/configs/evaluate.py:quickstart'
  rules = ('general', 'actor_critic')
  evaluating.launch(
    workdir, config, f'--config.rules={",".join(rules)}', *flags
  )
  assert [f'{result.learning_rate}' for result in reported] == list(rates)
  for rule, rate in zip(rules, rates):
    settings = metrics.read_json(
      workdir / 'catch-6x5' / rule / rate / 'config.json'
    )
    assert settings['learning_rate'] == float(rate)
    assert settings['unroll_length'] == 20
    assert settings['num_bins'] == (61 if rule == 'general' else 101)
    assert settings['discount'] == (0.99 if rule == 'general' else 0.997)
