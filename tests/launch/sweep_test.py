"""Tests of launch/sweep.py: plans, runs, reports."""

import functools
import json
import pathlib
import re
import shutil
from typing import Any

import launching
import numpy as np
from pretending import Pretended
import pytest
import scipy.stats
import train_runs

from configs import robustness
from disco_rl.environments import registry
from disco_rl.evaluation import planned_runs
from disco_rl.evaluation import report_figures
from disco_rl.meta_training import held_out_results
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import sources
from launch import scheduler
from launch import sweep
from launch import train

ABLATIONS = f'--config={launching.REPOSITORY}/configs/ablations.py'
ROBUSTNESS = f'--config={launching.REPOSITORY}/configs/robustness.py'
QUICKSTART = f'--config={launching.REPOSITORY}/configs/evaluate.py:quickstart'
RULES = ('actor_critic', 'policy_gradient')
ENVIRONMENTS = ('catch/4x3', 'catch/3x3')
TWO_RUNS = (
  *(x for x in train_runs.CATCH if '.rule=' not in x),
  f'--grid=rule={",".join(RULES)}',
)
FOUR_RUNS = (
  *(x for x in TWO_RUNS if '.environment=' not in x),
  f'--grid=environment={",".join(ENVIRONMENTS)}',
)


def plan(workdir: pathlib.Path, *arguments: str) -> list[planned_runs.Run]:
  with launching.parsed(f'--workdir={workdir}', *arguments):
    return sweep.plan(workdir)


launch = functools.partial(launching.call, sweep)
error = functools.partial(launching.error, sweep)


# The runs.


def test_variants_settings_and_seeds(tmp_path: pathlib.Path) -> None:
  runs = plan(
    tmp_path,
    ABLATIONS,
    '--config.meta_steps=7',
    '--config.seed=10',
    '--variants=full,no_q',
    '--grid=inner_updates=5,10',
    '--grid=hidden_sizes=(8, 8),(4,)',
    '--seeds=2',
  )
  assert len(runs) == 16
  # The first seed of all comes first.
  assert [run.settings['seed'] for run in runs] == 8 * [10] + 8 * [11]
  last = runs[-1]
  assert last.rule == 'no_q, inner_updates=10, hidden_sizes=(4,)'
  assert last.folder == tmp_path.joinpath(
    'no_q', 'inner_updates-10', 'hidden_sizes-4', 'seed_11'
  )
  expected = {
    'rule_has_q': False,
    'inner_updates': 10,
    'hidden_sizes': (4,),
    'meta_steps': 7,
    'seed': 11,
  }
  assert {name: last.settings[name] for name in expected} == expected
  # A worker gets them as JSON.
  config = meta_trainer.config_of(last.settings)
  sent = json.loads(json.dumps(last.settings))
  assert meta_trainer.config_of(sent) == config


def test_learning_rates_make_no_rules_of_their_own(
  tmp_path: pathlib.Path,
) -> None:
  runs = plan(tmp_path, ABLATIONS, '--grid=meta_learning_rate=1e-3,2e-3')
  assert [run.rule for run in runs] == 2 * ['ablations']
  assert [run.settings['meta_learning_rate'] for run in runs] == [1e-3, 2e-3]
  # Those of agents, and the rules that discoveries begin with, do.
  rules = 'general,imitation'
  for name, values in (('learning_rate', '1e-3,2e-3'), ('rule', rules)):
    runs = plan(tmp_path, ABLATIONS, f'--grid={name}={values}')
    labels = [f'{name}={value}' for value in values.split(',')]
    assert [run.rule for run in runs] == labels


def test_a_sample_is_part_of_the_grid(tmp_path: pathlib.Path) -> None:
  arguments = (
    ABLATIONS,
    '--grid=learning_rate=1e-3,2e-3,3e-3',
    '--grid=discount=0.9,0.99',
  )
  every = {run.folder for run in plan(tmp_path, *arguments)}
  assert len(every) == 6
  some = [run.folder for run in plan(tmp_path, *arguments, '--sample=3')]
  assert len(some) == len({*some} & every) == 3
  assert some == [
    run.folder for run in plan(tmp_path, *arguments, '--sample=3')
  ]
  # A larger sample makes these runs and others, in the order of the grid.
  more = [run.folder for run in plan(tmp_path, *arguments, '--sample=5')]
  assert {*some} < {*more} < every
  assert len(more) == 5
  assert [x for x in more if x in some] == some


def test_suites_are_expanded(tmp_path: pathlib.Path) -> None:
  runs = plan(
    tmp_path,
    *TWO_RUNS[:1],
    '--config.rule=actor_critic',
    '--grid=environment=gridworld_held_out, catch/5x5',
  )
  assert len(runs) == 19
  assert runs[-1].config.environment == 'catch/5x5'
  assert {run.rule for run in runs} == {'actor_critic'}


@pytest.mark.parametrize(
  'flags, rates',
  [
    ((), (0.01, 0.001)),
    (('--config.learning_rate=0.03',), (0.03, 0.03)),
    (('--grid=learning_rate=0.04',), (0.04, 0.04)),
  ],
)
def test_settings_follow_the_rule_unless_a_flag_sets_them(
  tmp_path: pathlib.Path, flags: tuple[str, ...], rates: tuple[float, ...]
) -> None:
  rules = ('general', 'actor_critic')
  runs = plan(tmp_path, QUICKSTART, f'--grid=rule={",".join(rules)}', *flags)
  assert tuple(run.settings['learning_rate'] for run in runs) == rates
  assert [run.rule for run in runs] == [*rules]
  assert [run.settings['num_bins'] for run in runs] == [61, 101]
  assert [run.settings['discount'] for run in runs] == [0.99, 0.99]


def test_rules_have_short_names_unless_several_would_have_one() -> None:
  names = {
    'general': 'general',
    'runs/first/rule.npz': 'first',
    'rule.npz': 'rule',
    'runs/second/mine.npz': 'mine',
    'a/same/rule.npz': 'a/same/rule.npz',
    'b/same/rule.npz': 'b/same/rule.npz',
  }
  assert planned_runs.labels([*names]) == names


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((ABLATIONS, '--variants=full,no_p'), "no 'no_p'; choose one of"),
    ((ABLATIONS, '--grid=learning_rte=1'), 'Unknown setting'),
    ((ABLATIONS, '--grid=learning_rate=-1'), 'rate=-1.0 must be positive'),
    ((ABLATIONS, '--grid=learning_rate'), 'as in --grid=learning_rate=1e-3'),
    ((ABLATIONS, '--grid=learning_rate=1,1'), 'would share the folder'),
    ((ABLATIONS, '--variants=full,full'), 'would share the folder'),
    ((QUICKSTART, '--seeds=2'), 'Set --config.seeds=2'),
    ((QUICKSTART, '--grid=environment=catch,cach'), "'cach'. Nearest: catch"),
    ((QUICKSTART, '--grid=rule=actor_critic,actor_critc'), 'actor_critic'),
    ((QUICKSTART, '--grid=rule=missing/rule.npz'), 'missing/rule.npz'),
  ],
)
def test_what_is_wrong_is_said_before_anything_runs(
  arguments: tuple[str, ...],
  message: str,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  # Weights are not there, and nobody looks for them.
  monkeypatch.setenv(sources.DIRECTORY_VARIABLE, str(tmp_path))
  found = error(tmp_path, *arguments).replace('Nearest names', 'Nearest')
  assert message in found
  assert not [*tmp_path.iterdir()]


# What is run, by workers that pretend.


def final_scores(workdir: pathlib.Path, rule: str, rate: str) -> np.ndarray:
  """From metrics.csv, independently of the report: [agents, environments]."""
  columns = []
  for environment in ENVIRONMENTS:
    path = workdir.joinpath(
      *(f'rule-{rule}', f'environment-{environment.replace("/", "-")}'),
      f'learning_rate-{rate}',
    )
    header, *rows = (path / 'metrics.csv').read_text().splitlines()
    names = header.split(',')
    last = [
      dict(zip(names, row.split(','))) for row in rows if row.startswith('20,')
    ]
    columns.append([(float(row['return']) + 1) / 2 for row in last])
  return np.array(columns).T


def test_the_report_agrees_with_the_metrics(
  pretended: Pretended, tmp_path: pathlib.Path
) -> None:
  launch(
    *(tmp_path, *FOUR_RUNS, '--grid=learning_rate=0.1,0.7,0.3'),
    '--processes=2',
  )
  assert len(pretended.made) == 12
  summary = json_files.read(tmp_path / 'summary.json')
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
  for rule in RULES:
    of_rule = final_scores(tmp_path, rule, '0.7')
    estimate = catch['rules'][rule]['median']
    value, (low, high) = estimate['value'], estimate['ci95']
    assert value == pytest.approx(np.median(of_rule.mean(axis=0)), abs=1e-5)
    assert f'{value:#.3g} [{low:#.3g}, {high:#.3g}]' in text
    for i, environment in enumerate(ENVIRONMENTS):
      returns = catch['rules'][rule]['returns'][environment]
      np.testing.assert_allclose(
        returns['per_seed'], 2 * of_rule[:, i] - 1, atol=1e-5
      )


def test_a_diverging_run_does_not_end_the_others(
  pretended: Pretended,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  arguments = (*FOUR_RUNS, '--grid=learning_rate=0.1,0.5,0.2')
  message = error(tmp_path, *arguments)
  assert '4 of 12 runs failed' in message
  assert 'environment-catch-4x3/learning_rate-0.5: loss of seed 0' in message
  assert len(pretended.made) == 12
  lines = capsys.readouterr().err.splitlines()
  expected = 'rule=actor_critic, environment=catch/4x3, learning_rate=0.1'
  assert lines[0] == f'Run 1 of 12: {expected}'
  text = (tmp_path / 'report.md').read_text()
  assert text.count('loss of seed 0 became non-finite.') == 4
  summary = json_files.read(tmp_path / 'summary.json')
  for rule in summary['benchmarks']['catch']['rules'].values():
    assert rule['learning_rate'] == 0.2
  # Neither finished nor failed runs are repeated.
  assert error(tmp_path, *arguments) == message
  assert len(pretended.made) == 12


def test_values_can_be_added_and_other_settings_stay(
  pretended: Pretended, tmp_path: pathlib.Path
) -> None:
  rules = lambda *names: f'--grid=rule={",".join(names)}'
  launch(tmp_path, *TWO_RUNS[:-1], rules(*RULES))
  launch(tmp_path, *TWO_RUNS[:-1], rules(RULES[1]))
  assert len(pretended.made) == 2
  # The report covers the runs of this command only.
  (catch,) = json_files.read(tmp_path / 'summary.json')['benchmarks'].values()
  assert [*catch['rules']] == [RULES[1]]
  launch(tmp_path, *TWO_RUNS[:-1], rules(*RULES, 'general'))
  assert pretended.made[2:] == ['catch/4x3 general 0.01']
  before = launching.contents(tmp_path)
  assert 'seeds was 2, is 3' in error(tmp_path, *TWO_RUNS, '--config.seeds=3')
  assert launching.contents(tmp_path) == before
  with workdirs.locked(tmp_path):
    assert 'in use by another run' in error(tmp_path, *TWO_RUNS)


def test_a_changed_file_of_weights_is_another_rule(
  pretended: Pretended, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'mine' / 'rule.npz'
  path.parent.mkdir()
  shutil.copy(sources.SHIPPED / 'general.npz', path)
  arguments = (*TWO_RUNS[:-1], f'--config.rule={path}')
  (run,) = plan(tmp_path / 'sweep', *arguments)
  # Named by the run that wrote it.
  assert run.rule == 'mine'
  rules = sources.files_among([str(path)])
  workdirs.claim(run.folder, run.settings, (), rules)
  planned_runs.check([run])
  (later,) = plan(tmp_path / 'another', *arguments)
  shutil.copy(sources.SHIPPED / 'imitation.npz', path)
  with pytest.raises(files.WorkdirError, match=f'{path} changed since'):
    planned_runs.check([run])
  # By a process of the sweep, which reads the file once more for each run.
  answer = scheduler._attempt(json.loads(json.dumps(scheduler._task(later))))
  assert f'{path} has changed since the runs were planned' in str(answer)
  assert not later.folder.exists()


def test_a_missing_package_is_found_before_anything_starts(
  pretended: Pretended,
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
  assert 'three' in error(workdir, *FOUR_RUNS)
  assert not pretended.made
  assert not workdir.exists()


def test_the_folder_of_a_single_run_is_left_alone(
  pretended: Pretended, tmp_path: pathlib.Path
) -> None:
  (tmp_path / 'metrics.csv').touch()
  assert 'contains a single run' in error(tmp_path, *FOUR_RUNS)
  assert not pretended.made


@pytest.mark.slow
def test_each_run_equals_a_single_run(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """By a true worker, which makes both runs."""
  for name, value in launching.OF_PROCESSES.items():
    monkeypatch.setenv(name, value)
  workdir = tmp_path / 'sweep'
  launch(workdir, *TWO_RUNS)
  launching.call(train, tmp_path / 'run', *train_runs.CATCH)
  run = workdir / 'rule-actor_critic'
  assert {path.name for path in run.iterdir()} == train_runs.FILES
  for name in ('metrics.csv', 'config.json'):
    alone = (tmp_path / 'run' / name).read_text()
    assert (run / name).read_text() == alone
  text = (workdir / 'report.html').read_text()
  found = re.findall('src="([^"]{0,30})', text)
  assert len(found) == 4
  assert {source[:22] for source in found} == {'data:image/png;base64,'}
  assert 'http' not in text
  figures = re.findall(r'\]\((.*png)\)', (workdir / 'report.md').read_text())
  assert len(figures) == 4
  for figure in figures:
    assert (workdir / figure).read_bytes().startswith(b'\x89PNG')

  # When it is over it notices one bit.
  path = workdir / 'rule-policy_gradient' / 'metrics.csv'
  content = bytearray(path.read_bytes())
  content[-2] ^= 1  # A digit, which becomes another.
  assert bytes(content[-2:-1]).isdigit()
  path.write_bytes(content)
  message = error(workdir, *TWO_RUNS)
  assert f'{path} has changed since its run ended' in message
  assert "Restore the file, or delete the run's folder" in message


# Reports.

# Variant -> returns of new agents, [seeds, evaluations].
RETURNS = {
  'full': np.array([[-1.0, 0.6, 1.0], [-0.8, 0.2, 0.8], [-0.6, 0.4, 0.6]]),
  'no_q': np.array([[-1.0, -0.8, -0.4], [-1.0, -0.9, -0.2], [-1.0, -1.0, 0.0]]),
}


def write_discovery(workdir: pathlib.Path, returns: Any) -> None:
  """Metrics of two environments with three and one agents, 100 steps each."""
  columns = ('meta_step', 'environment')
  workdir.mkdir(parents=True)
  json_files.write(workdir / 'config.json', {'meta_steps': 4})
  with metrics.MetricsWriter(workdir, 0, *columns) as writer:
    for meta_step in range(1, 5):
      for name, agents in (('catch/4x3', 3), ('gridworld/00', 1)):
        row = {'meta_step': meta_step, 'environment': name, 'agents': agents}
        row['environment_steps'] = 100 * agents * meta_step
        writer.write([row])
  with metrics.MetricsWriter(workdir / 'held_out', 0, *columns) as writer:
    for i, value in enumerate(returns):
      row = {'meta_step': 2 * i, 'environment': 'catch/6x5'}
      writer.write([{**row, 'return': value}])


def test_the_report_compares_what_fresh_agents_earn(
  tmp_path: pathlib.Path,
) -> None:
  runs = plan(
    tmp_path, ABLATIONS, '--variants=full,no_q,no_y_and_z', '--seeds=3'
  )
  for run in runs:
    if run.rule in RETURNS:
      write_discovery(run.folder, RETURNS[run.rule][run.settings['seed']])
  failures = {
    run.folder: 'it is too hot' for run in runs if run.rule == 'no_y_and_z'
  }
  with launching.parsed(f'--workdir={tmp_path}', ABLATIONS):
    sweep.report(runs, failures, tmp_path, {})

  summary = json_files.read(tmp_path / 'summary.json')
  assert summary['seeds'] == 3
  (catch,) = summary['benchmarks'].values()
  for variant, returns in RETURNS.items():
    # Of three scores the interquartile mean leaves none out; catch is scored
    # from -1 to 1.
    scores = (returns[:, -1] + 1) / 2
    found = catch['rules'][variant]
    assert found['iqm']['value'] == pytest.approx(scores.mean())
    low, high = found['iqm']['ci95']
    assert scores.min() <= low < scores.mean() < high <= scores.max()
    assert found['returns']['catch/6x5']['per_seed'] == list(returns[:, -1])
  (improvement,) = catch['probability_of_improvement']
  assert improvement['value'] == 1.0  # Each seed of `full` beats all others.
  text = (tmp_path / 'report.md').read_text()
  assert 'Meta-steps of each: 1,000.' in text
  assert 'it is too hot' in text
  assert (tmp_path / 'report.html').exists()


@pytest.mark.parametrize(
  ('grid', 'name', 'expected'),
  [
    # A single setting is the x-axis.
    (
      ['--grid=optimizer=adam,rmsprop'],
      'optimizer',
      {'adam': [0.0, 2.0], 'rmsprop': [1.0, 3.0]},
    ),
    (
      ['--grid=optimizer=adam,rmsprop', '--grid=weight_decay=0,0.1'],
      None,
      {
        'adam, 0': [0.0, 4.0],
        'adam, 0.1': [1.0, 5.0],
        'rmsprop, 0': [2.0, 6.0],
        'rmsprop, 0.1': [3.0, 7.0],
      },
    ),
  ],
)
def test_scores_over_the_settings_of_agents_are_drawn(
  grid: list[str],
  name: str | None,
  expected: dict[str, list[float]],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  arguments = (
    *(ROBUSTNESS, '--config.updates=4'),
    *(f'--grid=rule={",".join(RULES)}', *grid),
  )
  runs = plan(tmp_path, *arguments)
  for i, run in enumerate(runs):
    with metrics.MetricsWriter(run.folder) as writer:
      row = {'update': 4, 'environment_steps': 288}
      # In the order of the runs: those of the first rule come first.
      writer.write([{**row, 'seed': seed, 'return': i} for seed in range(2)])
  drawn = []
  draw = report_figures.over_settings
  monkeypatch.setattr(
    report_figures,
    'over_settings',
    lambda *given: drawn.append(given) or draw(*given),
  )
  with launching.parsed(f'--workdir={tmp_path}', *arguments):
    sweep.report(runs, {runs[-1].folder: 'diverged'}, tmp_path, {})
  ((scores, drawn_name),) = drawn
  assert drawn_name == name
  found = {
    setting: [np.mean(of_rule[setting]) for of_rule in scores.values()]
    for setting in expected
  }
  *_, last = expected
  expected = {**expected, last: [expected[last][0], np.nan]}
  for setting, values in expected.items():
    np.testing.assert_array_equal(found[setting], values)
  assert (tmp_path / 'figures' / 'settings.png').exists()


def test_a_sample_is_drawn_at_its_settings(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  arguments = (
    *(QUICKSTART, f'--grid=rule={",".join(RULES)}'),
    *('--grid=entropy_cost=0.1,0.2,0.3,0.4', '--sample=4', '--config.seeds=1'),
  )
  runs = plan(tmp_path, *arguments)
  for run in runs:
    with metrics.MetricsWriter(run.folder) as writer:
      row = {'update': 4, 'seed': 0, 'environment_steps': 288}
      writer.write([{**row, 'return': run.settings['entropy_cost']}])
  drawn = []
  draw = report_figures.over_settings
  monkeypatch.setattr(
    report_figures,
    'over_settings',
    lambda *given: drawn.append(draw(*given)) or drawn[0],
  )
  with launching.parsed(f'--workdir={tmp_path}', *arguments):
    sweep.report(runs, {}, tmp_path, {})
  (ax,) = drawn[0].axes
  labels = [float(label.get_text()) for label in ax.get_xticklabels()]
  assert labels == sorted({run.settings['entropy_cost'] for run in runs})
  for line in ax.lines:
    for x, y in zip(line.get_xdata(), line.get_ydata()):
      assert np.isnan(y) or y == labels[int(x) - 1]
  # Without settings to draw, no earlier picture remains.
  arguments = (QUICKSTART, f'--grid=rule={RULES[0]}')
  (run,) = plan(tmp_path, *arguments)
  shutil.copytree(runs[0].folder, run.folder, dirs_exist_ok=True)
  with launching.parsed(f'--workdir={tmp_path}', *arguments):
    sweep.report([run], {}, tmp_path, {})
  assert not (tmp_path / 'figures' / 'settings.png').exists()


def test_combinations_are_ranked_by_their_mean() -> None:
  scores = np.array([[0.0, 1.0], [np.nan, np.nan], [3.0, 0.0]])
  np.testing.assert_array_equal(
    report_figures.ranked(scores), scores[[2, 0, 1]]
  )


def test_variants_of_replay_have_equal_environment_steps() -> None:
  base = robustness.VARIANTS['catch']
  for percent in (0, 50, 75, 88, 96):
    variant = robustness.VARIANTS[f'replay_{percent}']
    number, batch_size = variant['num_environments'], variant['batch_size']
    assert number / batch_size == pytest.approx(1 - percent / 100, abs=0.006)
    assert variant['on_policy_share'] == number / batch_size
    assert number * variant['updates'] == 6 * base['updates']
  for variant in robustness.VARIANTS:
    settings = robustness.get_config(variant).to_dict()
    # Not a file to download.
    training_config.config_of({**settings, 'rule': 'actor_critic'})


def test_curves_are_over_steps_of_one_agent(tmp_path: pathlib.Path) -> None:
  folders = []
  for seed, returns in enumerate(RETURNS['full']):
    folders.append(tmp_path / f'{seed}')
    write_discovery(folders[-1], returns)
  (result,) = held_out_results.read('full', 1e-3, folders)
  steps, returns = result.curve
  np.testing.assert_array_equal(steps, [0, 200, 400])
  np.testing.assert_array_equal(returns, RETURNS['full'])
  damaged = tmp_path / 'damaged'
  write_discovery(damaged, RETURNS['full'][0])
  digests.write_summary(damaged, {'meta_steps': 4})
  (damaged / 'held_out' / 'metrics.csv').write_text('meta_step\n')
  with pytest.raises(
    files.WorkdirError, match='held_out/metrics.csv has changed'
  ):
    held_out_results.read('full', 1e-3, [*folders, damaged])
  write_discovery(tmp_path / 'short', [0.0])
  with pytest.raises(files.WorkdirError, match='not evaluated in the same'):
    held_out_results.read('full', 1e-3, [*folders, tmp_path / 'short'])


def test_numbers_that_differ_are_reported_as_a_range() -> None:
  same = {'agents': 8, 'held_out_seeds': 3, 'held_out_updates': 100}
  settings = [{**same, 'meta_steps': n} for n in (10, 2000)]
  setup = held_out_results.setup(settings, seeds=3)
  assert 'Meta-steps of each: 10 to 2,000.' in setup.extent
  assert 'population: 8.' in setup.extent
  assert '(3 agents, 100 updates each)' in setup.score
