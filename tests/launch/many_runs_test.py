"""Tests of launch/sweep.py and launch/processes.py: plans, runs, reports."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import launching
import numpy as np
import pytest

from configs import robustness
from disco_rl.evaluation import report as report_lib
from disco_rl.evaluation import settings_figure
from disco_rl.meta_training import held_out_results
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import signals
from disco_rl.runtime import summaries
from launch import orphans
from launch import processes
from launch import sweep
from launch import to_records

ABLATIONS = f'--config={launching.REPOSITORY}/configs/ablations.py'
EVALUATE = f'--config={launching.REPOSITORY}/configs/evaluate.py:quickstart'


def plan(workdir: pathlib.Path, *arguments: str) -> list[sweep.Run]:
  with launching.parsed(f'--workdir={workdir}', *arguments):
    return sweep.plan(workdir)


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
  assert last.label == 'no_q, inner_updates=10, hidden_sizes=(4,)'
  assert last.folder == tmp_path.joinpath(
    'no_q', 'inner_updates-10', 'hidden_sizes-4', 'seed_1'
  )
  expected = {
    'rule_has_q': False,
    'inner_updates': 10,
    'hidden_sizes': (4,),
    'meta_steps': 7,
    'seed': 11,
  }
  assert {name: last.settings[name] for name in expected} == expected
  assert last.goal == 7
  # The command of the run has the very same settings.
  assert last.arguments[:3] == ('-m', 'disco_rl', 'meta-train')
  flags = last.arguments[3:]
  with launching.parsed(*flags) as settings:
    assert settings == last.settings
    to_records.meta_training(settings)


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


def test_training_is_swept_over_by_what_reports_have_columns_for(
  tmp_path: pathlib.Path,
) -> None:
  runs = plan(
    tmp_path,
    EVALUATE,
    '--launcher=evaluate',
    '--grid=rule=actor_critic,policy_gradient',
    '--grid=learning_rate=1e-3,1e-2',
  )
  assert [run.label for run in runs] == [
    *2 * ['rule=actor_critic'],
    *2 * ['rule=policy_gradient'],
  ]
  assert [run.settings['learning_rate'] for run in runs] == 2 * [1e-3, 1e-2]
  assert runs[0].counter == 'updates'
  assert runs[0].goal == 500


@pytest.mark.parametrize(
  'lists', ['--grid=rules=actor_critic', '--config.learning_rates=1e-3,1e-2']
)
def test_lists_of_another_launcher_are_not_ignored(
  lists: str, tmp_path: pathlib.Path
) -> None:
  name = lists.split('.')[-1].split('=')[-2]
  with pytest.raises(ValueError, match=f'{name}=.* ignored .* --grid=env'):
    plan(tmp_path, EVALUATE, '--launcher=evaluate', lists)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--variants=full,no_p'], "no 'no_p'; choose one of"),
    (['--grid=learning_rte=1'], 'Unknown setting'),
    (['--grid=learning_rate=-1'], 'learning_rate=-1.0 must be positive'),
    (['--grid=learning_rate'], 'as in --grid=learning_rate=1e-3,5e-3'),
    (['--grid=learning_rate=1,1'], 'would share the folder'),
    (['--variants=full,full'], 'would share the folder'),
    (['--launcher=evaluate', '--seeds=2'], 'Set --config.seeds=2'),
  ],
)
def test_what_is_wrong_is_said_before_anything_runs(
  arguments: list[str], message: str, tmp_path: pathlib.Path
) -> None:
  with pytest.raises((ValueError, SystemExit), match=message):
    plan(tmp_path, ABLATIONS, *arguments)
  assert not [*tmp_path.iterdir()]


# Processes.

# Notes when it ran, then finishes as a run does; or fails the first time.
_COMMAND = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
if sys.argv[2] == 'fails' and not (folder / 'tried').exists():
  (folder / 'tried').touch()
  sys.exit('error: it is too hot')
start = time.time()
time.sleep(float(sys.argv[3]))
(folder / 'summary.json').write_text(json.dumps({'steps': 4}))
(folder / 'times.json').write_text(json.dumps([start, time.time()]))
"""
_SAVES = """
import pathlib, signal, sys, time
def save(*_):
  pathlib.Path(sys.argv[1], 'saved').touch()
  sys.exit(143)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1]).mkdir()
pathlib.Path(sys.argv[1], 'begun').touch()
time.sleep(60)
"""


def await_file(path: pathlib.Path) -> None:
  deadline = time.monotonic() + 60
  while not path.exists():
    assert time.monotonic() < deadline, f'{path} is never written'
    time.sleep(0.01)


def command(
  folder: pathlib.Path, code: str = _COMMAND, kind: str = 'works'
) -> processes.Command:
  return processes.Command(
    name=folder.name,
    folder=folder,
    counter='steps',
    goal=4,
    arguments=('-S', '-c', code, str(folder), kind, '0.5'),
  )


def test_runs_go_on_side_by_side_and_are_not_repeated(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  commands = [
    command(tmp_path / 'a'),
    command(tmp_path / 'b'),
    command(tmp_path / 'c', kind='fails'),
  ]
  failures = processes.run_all(commands, at_once=2)
  log = tmp_path / 'c.log'
  assert failures == {
    tmp_path / 'c': f'error: it is too hot (exit status 1; see {log})'
  }
  first, second = (
    np.fromstring((tmp_path / x / 'times.json').read_text()[1:-1], sep=',')
    for x in 'ab'
  )
  assert first[0] < second[1] and second[0] < first[1]
  lines = capsys.readouterr().err.splitlines()
  assert lines[:2] == ['Run 1 of 3: a', 'Run 2 of 3: b']
  assert lines[2].startswith('Run 3 of 3, about 0:00:0')

  # Only what failed is left.
  assert not processes.run_all(commands, at_once=2)
  assert capsys.readouterr().err.splitlines() == ['Run 3 of 3: c']
  assert not processes.run_all(commands, at_once=2)
  assert capsys.readouterr().err == ''


def test_a_killed_run_is_told_from_earlier_ones(tmp_path: pathlib.Path) -> None:
  """The log holds what an earlier process printed; this one prints nothing."""
  killed = command(tmp_path / 'a', 'import os; os.kill(os.getpid(), 9)')
  killed.log.write_text('error: an old one\n')
  assert processes.run_all([killed], at_once=1) == {
    killed.folder: 'nothing was printed (signal 9, likely for lack of memory; '
    f'see {killed.log})'
  }


def test_a_signal_reaches_the_runs(tmp_path: pathlib.Path) -> None:
  folders = [tmp_path / x for x in 'ab']

  def interrupt() -> None:
    for folder in folders:
      await_file(folder / 'begun')
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=interrupt).start()
  with pytest.raises(signals.Interrupted) as caught:
    processes.run_all([command(x, _SAVES) for x in folders], at_once=2)
  assert caught.value.code == 128 + signal.SIGTERM
  assert all((x / 'saved').exists() for x in folders)


# A sweep of one run, which ends like those of the launchers.
_SWEEP = """
import pathlib, sys
from launch import processes
folder = pathlib.Path(sys.argv[1])
processes.run_all([processes.Command(
  name='a', folder=folder, counter='steps', goal=4,
  arguments=('-S', '-c', sys.argv[2], str(folder)),
)], at_once=1)
"""
_WATCHES = 'from launch import orphans; orphans.watch()'


def test_runs_save_when_the_sweep_is_killed(tmp_path: pathlib.Path) -> None:
  folder = tmp_path / 'a'
  with launching.start_python(
    '-c', _SWEEP, str(folder), f'{_WATCHES}{_SAVES}'
  ) as process:
    await_file(folder / 'begun')
    assert not (folder / 'saved').exists()
    process.kill()
  await_file(folder / 'saved')


def test_launchers_watch_the_sweep(tmp_path: pathlib.Path) -> None:
  """The end of the input comes first, long before the run has begun."""
  settings = [
    '--config=configs/evaluate.py:quickstart',
    f'--workdir={tmp_path}',
  ]
  ended = subprocess.run(
    [sys.executable, '-m', 'launch.evaluate', *settings],
    cwd=launching.REPOSITORY,
    env={**os.environ, **orphans.variables()},
    stdin=subprocess.DEVNULL,
    check=False,
  )
  assert ended.returncode == -signal.SIGTERM


# Reports.

# Variant -> returns of new agents, [seeds, evaluations].
RETURNS = {
  'full': np.array([[-1.0, 0.6, 1.0], [-0.8, 0.2, 0.8], [-0.6, 0.4, 0.6]]),
  'no_q': np.array([[-1.0, -0.8, -0.4], [-1.0, -0.9, -0.2], [-1.0, -1.0, 0.0]]),
}


def write_discovery(workdir: pathlib.Path, returns: Any) -> None:
  """Metrics of two environments with three and one agents, 100 steps each."""
  columns = ('meta_step', 'environment')
  with metrics.MetricsWriter(workdir, None, *columns) as writer:
    for meta_step in range(1, 5):
      for name, agents in (('catch/4x3', 3), ('gridworld/00', 1)):
        row = {'meta_step': meta_step, 'environment': name, 'agents': agents}
        row['environment_steps'] = 100 * agents * meta_step
        writer.write([row])
  with metrics.MetricsWriter(workdir / 'held_out', None, *columns) as writer:
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
    variant, seed = run.folder.parent.name, run.settings['seed']
    if variant in RETURNS:
      write_discovery(run.folder, RETURNS[variant][seed])
  failures = {
    run.folder: 'error: it is too hot'
    for run in runs
    if run.label == 'no_y_and_z'
  }
  with launching.parsed(f'--workdir={tmp_path}', ABLATIONS):
    sweep.report(runs, failures, tmp_path)

  summary = metrics.read_json(tmp_path / 'summary.json')
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


ROBUSTNESS = f'--config={launching.REPOSITORY}/configs/robustness.py'


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
    *(ROBUSTNESS, '--launcher=evaluate', '--config.updates=4'),
    *('--grid=rule=actor_critic,policy_gradient', *grid),
  )
  runs = plan(tmp_path, *arguments)
  for i, run in enumerate(runs):
    with metrics.MetricsWriter(run.folder) as writer:
      row = {'update': 4, 'environment_steps': 288}
      # In the order of the runs: those of the first rule come first.
      writer.write([{**row, 'seed': seed, 'return': i} for seed in range(2)])
  drawn = []
  draw = settings_figure.draw
  monkeypatch.setattr(
    settings_figure, 'draw', lambda *given: drawn.append(given) or draw(*given)
  )
  with launching.parsed(f'--workdir={tmp_path}', *arguments):
    sweep.report(runs, {runs[-1].folder: 'diverged'}, tmp_path)
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


def test_combinations_are_ranked_by_their_mean() -> None:
  scores = np.array([[0.0, 1.0], [np.nan, np.nan], [3.0, 0.0]])
  np.testing.assert_array_equal(
    settings_figure.ranked(scores), scores[[2, 0, 1]]
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
    to_records.evaluation({**settings, 'rule': 'actor_critic'})


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
  summaries.write(damaged, {'meta_steps': 4})
  (damaged / 'held_out' / 'metrics.csv').write_text('meta_step\n')
  with pytest.raises(files.WorkdirError, match='held_out/metrics.csv is not'):
    held_out_results.read('full', 1e-3, [*folders, damaged])
  write_discovery(tmp_path / 'short', [0.0])
  with pytest.raises(files.WorkdirError, match='not evaluated in the same'):
    held_out_results.read('full', 1e-3, [*folders, tmp_path / 'short'])


def test_numbers_that_differ_are_reported_as_a_range() -> None:
  setup = held_out_results.Setup(3, (10, 2000), (8, 8), (3, 3), (100, 100))
  described: report_lib.Described = setup
  assert 'Meta-steps of each: 10 to 2,000.' in described.extent
  assert 'population: 8.' in described.extent
  assert '(3 agents, 100 updates each)' in described.score
