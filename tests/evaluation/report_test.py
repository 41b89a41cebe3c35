"""Tests of comparisons and reports, on synthetic results."""

from collections.abc import Sequence
import pathlib
from unittest import mock

import drawn
import numpy as np
import pytest

from disco_rl.evaluation import comparison
from disco_rl.evaluation import normalization
from disco_rl.evaluation import report
from disco_rl.evaluation import report_figures
from disco_rl.maths import statistics
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting
from disco_rl.training import config as training_config

SETUP = report.Setup('Much.', 'A score.', {'agents': 3})


def write(results: Sequence[comparison.Result], workdir: pathlib.Path) -> str:
  """Writes the report on results; returns its text."""
  report.write(comparison.compare(results), SETUP, workdir)
  return (workdir / 'report.md').read_text()


def result(
  environment: str,
  rule: str = 'mine',
  rate: float = 0.1,
  returns: Sequence[float] = (0.0, 0.1, 0.2),
  steps: Sequence[float] = (50.0, 100.0),
) -> comparison.Result:
  """Agents whose scores rise linearly from 0 to these returns."""
  fraction = np.asarray(steps) / steps[-1]
  curve = np.asarray(steps), np.asarray(returns)[:, None] * fraction
  return comparison.Result(environment, rule, rate, curve)


@pytest.mark.parametrize(
  ('environment', 'steps', 'has_frames'),
  [('catch', '2,800', False), ('atari/pong', '11,200', True)],
)
def test_steps_of_atari_are_said_to_be_frames(
  environment: str, steps: str, has_frames: bool
) -> None:
  """10 updates of 10 environments, 28 actions each."""
  config = training_config.TrainingConfig(environment=environment, updates=10)
  extent = report.of_training([config]).extent
  assert f'in {steps} environment steps.' in extent
  assert ('frames' in extent) == has_frames


def test_a_page_has_its_headings_tables_and_figures(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Agents are equal. Scores of a are 0.6 and 0.8, at a rate of 0.1."""
  # Writing pictures takes seconds.
  save = lambda _, path: path.write_bytes(b'picture')
  monkeypatch.setattr(plotting, 'save', save)
  results = [
    result(name, rule, rate, [value] * 3)
    for rule, rate, *values in (
      ('a', 0.2, 0.0, 0.0),
      ('a', 0.1, 0.2, 0.6),
      ('b', 0.1, 0.0, 0.0),
    )
    for name, value in zip(('catch', 'catch/5x5'), values)
  ]
  text = write(results, tmp_path)
  lines = [line for line in text.splitlines() if line[:1] in tuple('#|!')]
  a, b = '0.700 [0.700, 0.700]', '0.500 [0.500, 0.500]'
  figure_of = lambda name: f'![catch_{name}](figures/catch_{name}.png)'
  assert lines == [
    '# Evaluation of update rules',
    '## Catch, normalized',
    '| rule | learning rate | IQM | median | mean | optimality gap | IQM, '
    'levels resampled |',
    '| --- |' + 6 * ' ---: |',
    f'| a | 0.1 | {a} | {a} | {a} | 0.300 [0.300, 0.300] | 0.700 [0.600, '
    '0.800] |',
    f'| b | 0.1 | {b} | {b} | {b} | {b} | {b} |',
    figure_of('aggregates'),
    figure_of('sample_efficiency'),
    figure_of('profiles'),
    '### Rule against rule',
    '| rule | than | P(higher) + P(equal) / 2, in the same environment | '
    'difference of means, levels resampled | better in |',
    '| --- |' + 4 * ' ---: |',
    '| a | b | 1.00 [1.00, 1.00] | 0.200 [0.100, 0.300] | 2 of 2 |',
    '### All learning rates',
    '| IQM of rule | 0.1 | 0.2 |',
    '| --- |' + 2 * ' ---: |',
    f'| a | {a} | {b} |',
    f'| b | {b} |  |',
    figure_of('learning_rates'),
    '### Every environment',
    '| mean | a | b | return scored 0 | return scored 1 |',
    '| --- |' + 4 * ' ---: |',
    '| catch | 0.200 [0.200, 0.200] | 0.00 [0.00, 0.00] | -1.00 | 1.00 |',
    '| catch/5x5 | 0.600 [0.600, 0.600] | 0.00 [0.00, 0.00] | -1.00 | 1.00 |',
    figure_of('environments'),
  ]
  assert 'Rules: a, b. Environments: 2. Much.' in text
  summary = json_files.read(tmp_path / 'summary.json')
  assert summary['agents'] == 3
  (of_catch,) = summary['benchmarks'].values()
  assert of_catch['is_normalized']
  assert of_catch['environments'] == ['catch', 'catch/5x5']
  assert of_catch['iqm_by_learning_rate']['a']['0.2']['value'] == 0.5
  (probability,) = of_catch['probability_of_improvement']
  assert probability == {'rule': 'a', 'than': 'b', 'value': 1, 'ci95': [1, 1]}
  (difference,) = of_catch['difference_over_levels']
  assert (difference['rule'], difference['than']) == ('a', 'b')
  assert difference['better_in'] == 2
  assert difference['value'] == pytest.approx(0.2)
  page = (tmp_path / 'report.html').read_text()
  places = [
    page.index(x)
    for x in (
      '<h1>Evaluation of update rules',
      '<h2>Catch, normalized',
      '<h3>Rule against rule',
      '<h3>All learning rates',
      '<h3>Every environment',
    )
  ]
  assert places == sorted(places)
  assert page.count('<img') == 5
  assert page.count('<tr') == 3 + 2 + 3 + 3


def test_environments_are_averaged_within_their_benchmark() -> None:
  names = ['catch', 'procgen/bigfish', 'gymnasium/A-v0', 'catch/5x5']
  names += ['procgen/easy/bigfish', 'gymnasium/B-v0', 'minatar/seaquest']
  compared = comparison.compare([result(name) for name in names])
  assert [list(c.environments) for c in compared] == [
    ['catch', 'catch/5x5'],
    ['procgen/bigfish'],
    ['gymnasium/A-v0'],
    ['procgen/easy/bigfish'],
    ['gymnasium/B-v0'],
    ['minatar/seaquest'],
  ]
  normalized = [c.is_normalized for c in compared]
  assert normalized == [True, True, False, True, False, False]


def test_the_learning_rate_of_the_highest_iqm_is_chosen_for_each_rule() -> None:
  results = [
    result(environment, rule, rate, [value] * 3)
    for environment in ('catch', 'catch/5x5')
    for rule, values in {'a': (0.1, 0.7, 0.3), 'b': (0.9, 0.2, 0.0)}.items()
    for rate, value in zip((1e-4, 3e-4, 5e-4), values, strict=True)
  ]
  (compared,) = comparison.compare(results)
  assert {s.rule: s.learning_rate for s in compared.best} == {
    'a': 3e-4,
    'b': 1e-4,
  }
  assert [*compared.iqms['b']] == [1e-4, 3e-4, 5e-4]
  iqm = compared.iqms['a'][5e-4]
  assert iqm is not None
  assert iqm.value == pytest.approx(0.65)  # Of Catch, from [-1, 1] to [0, 1].


@pytest.mark.parametrize(
  'bad',
  [
    comparison.Result('catch/5x5', 'mine', 0.1, failure='diverged'),
    result('catch/5x5', returns=(1.0, np.nan, 1.0)),
  ],
)
def test_a_run_without_scores_rules_out_its_learning_rate(
  bad: comparison.Result,
) -> None:
  results = [result('catch', returns=(1.0, 1.0, 1.0)), bad]
  (compared,) = comparison.compare(results)
  assert not compared.best
  assert compared.iqms == {'mine': {0.1: None}}
  (problem,) = compared.problems
  assert problem == f'catch/5x5, mine, learning rate 0.1: {bad.problem}'
  results += [result(name, rate=0.2) for name in ('catch', 'catch/5x5')]
  (compared,) = comparison.compare(results)
  (best,) = compared.best
  # Although its score in Catch 8x8 is lower.
  assert best.learning_rate == 0.2


def test_a_rule_without_a_run_in_some_environment_is_not_compared(
  tmp_path: pathlib.Path,
) -> None:
  results = [
    result('catch', 'a'),
    result('catch/5x5', 'a'),
    result('catch/5x5', 'b'),
    result('catch', 'b', 0.2),
  ]
  text = write(results, tmp_path)
  (compared,) = comparison.compare(results)
  assert [scores.rule for scores in compared.best] == ['a']
  assert compared.iqms['b'] == {0.1: None, 0.2: None}
  assert compared.problems == [
    'catch, b, learning rate 0.1: it is not among the runs',
    'catch/5x5, b, learning rate 0.2: it is not among the runs',
  ]
  assert 'No learning rate has all scores: b.' in text


@pytest.mark.parametrize(
  ('rates', 'said'),
  [
    ({'a': (0.1, 0.2), 'b': (0.1,)}, 'shown at the one of 2 learning rates'),
    ({'a': (0.1,), 'b': (0.1,)}, 'All rules have the same learning rate.'),
    ({'a': (0.1,), 'b': (0.2,)}, 'the one learning rate at which it was run.'),
  ],
)
def test_it_is_said_how_learning_rates_were_chosen(
  rates: dict[str, tuple[float, ...]], said: str
) -> None:
  results = [
    result('catch', rule, rate)
    for rule, tried in rates.items()
    for rate in tried
  ]
  (compared,) = comparison.compare(results)
  assert said in report._about_rates(compared)


def test_scores_are_compared_in_the_same_environment() -> None:
  """In whatever order the runs are, as in a sample of a sweep."""
  results = [
    result('catch', 'a', returns=(0.0, 0.0)),
    result('catch/5x5', 'a', returns=(0.6, 0.6)),
    result('catch/5x5', 'b', returns=(0.8, 0.8)),
    result('catch', 'b', returns=(0.2, 0.2)),
  ]
  (compared,) = comparison.compare(results)
  (improvement,) = compared.improvements
  assert (improvement.rule, improvement.probability.value) == ('a', 0.0)
  # Scores are halves of returns, and both differences of returns are 0.2.
  assert improvement.difference.value == pytest.approx(-0.1)
  assert improvement.difference.ci95 == pytest.approx([-0.1, -0.1])
  assert improvement.better_levels == 0


def test_a_recipe_is_judged_by_its_discoveries(tmp_path: pathlib.Path) -> None:
  """Scores are 0.5 + 0.5 times the returns, 0.6, 0.7, 0.8 and 0.5."""
  returns = {'first': 0.2, 'second': 0.4, 'third': 0.6, 'by_hand': 0.0}
  results = [
    result(name, rule, returns=(value, value))
    for rule, value in returns.items()
    for name in ('catch', 'catch/5x5')
  ]
  recipes = {'mine': ('first', 'second', 'third')}
  (compared,) = comparison.compare(results, recipes=recipes)
  (recipe,) = compared.recipes
  assert recipe.iqms == pytest.approx([0.6, 0.7, 0.8])
  # The standard deviation is 0.1, t of two degrees of freedom 4.3027.
  reach = 4.3027 * 0.1 / np.sqrt(3)
  assert recipe.iqm.ci95 == pytest.approx([0.7 - reach, 0.7 + reach], abs=1e-4)
  assert list(recipe.differences) == ['by_hand']
  difference = recipe.differences['by_hand']
  assert difference.value == pytest.approx(0.2)
  assert difference.ci95 == pytest.approx([0.2 - reach, 0.2 + reach], abs=1e-4)
  report.write([compared], SETUP, tmp_path)
  text = (tmp_path / 'report.md').read_text()
  assert '| mine | 3 | IQM | 0.700 [0.452, 0.948] |' in text
  assert '| mine | 3 | minus by_hand | 0.200 [-0.0484, 0.448] |' in text
  summary = json_files.read(tmp_path / 'summary.json')
  (benchmark,) = summary['benchmarks'].values()
  assert benchmark['recipes']['mine']['rules'] == ['first', 'second', 'third']


def test_the_curve_begins_where_all_have_scores() -> None:
  late = result('catch', steps=(20.0, 60.0, 100.0))
  late.curve[1][1, 0] = np.nan
  early = result('catch/5x5', steps=(10.0, 90.0))
  (compared,) = comparison.compare([late, early])
  (scores,) = compared.best
  assert scores.curve_steps[0] == 60
  assert scores.curve_steps[-1] == 90
  scale = normalization.find_scale('catch')
  assert scale is not None
  # Both rise linearly, so that values between their points are known.
  means = [
    np.array([0.0, 0.1, 0.2])[:, None] * np.array([steps / 100, steps / 90])
    for steps in (60, 90)
  ]
  expected = [statistics.iqm(scale.normalize(mean)) for mean in means]
  np.testing.assert_allclose(scores.curve.value[[0, -1]], expected)


def test_metrics_that_changed_after_a_run_are_refused(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'metrics.csv'
  path.write_text('update,seed,environment_steps,return\n1,0,2,0.5\n')
  digests.write_summary(tmp_path, {'updates': 1})
  found = comparison.read_result(path, 'catch', 'a', 0.1, 1)
  assert found.curve is not None and found.curve[1] == [[0.5]]
  path.write_text(path.read_text().replace('0.5', '0.9'))
  with pytest.raises(files.WorkdirError, match=f'{path} has changed since'):
    comparison.read_result(path, 'catch', 'a', 0.1, 1)


def test_rows_after_the_last_update_compared_are_left_out(
  tmp_path: pathlib.Path,
) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    for update in (1, 2, 3):
      row = {'update': update, 'seed': 0, 'environment_steps': 10 * update}
      writer.write([{**row, 'return': update, 'success': update / 10}])
  path = tmp_path / 'metrics.csv'
  read = comparison.read_result(path, 'catch', 'mine', 0.1, 2)
  assert read.returns.tolist() == [2.0]
  assert read.curve[0].tolist() == [10, 20]
  sokoban = comparison.read_result(path, 'sokoban', 'mine', 0.1, 3)
  assert sokoban.returns.tolist() == [0.3]


def test_one_agent_and_one_point(tmp_path: pathlib.Path) -> None:
  results = [
    result('gymnasium/A-v0', rule, returns=[value], steps=[100.0])
    for rule, value in (('a', 2.0), ('b', 1.0))
  ]
  text = write(results, tmp_path)
  assert '| a | 0.1 | 2.00 | 2.00 | 2.00 |' in text
  assert '| a | b | 1.00 |' in text
  assert 'optimality' not in text.lower()
  summary = json_files.read(tmp_path / 'summary.json')
  (raw,) = summary['benchmarks'].values()
  assert raw['rules']['a']['iqm'] == {'value': 2.0, 'ci95': None}
  assert 'optimality_gap' not in raw['rules']['a']


def test_a_report_goes_without_pictures_that_cannot_be_drawn(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  failing = mock.Mock(side_effect=OSError('no font'))
  monkeypatch.setattr(plotting, 'save', failing)
  text = write([result('catch'), result('catch', 'b')], tmp_path)
  warnings = capsys.readouterr().err.splitlines()
  assert 'aggregates.png: OSError: no font' in warnings[0]
  assert all('OSError: no font' in warning for warning in warnings)
  drawn = {call.args[1].stem: call.args[0] for call in failing.call_args_list}
  assert {name for name, fig in drawn.items() if not fig.legends} == {
    'catch_aggregates'  # The names of rules are those of its rows.
  }
  assert '| b | 0.1 |' in text and '.png' not in text
  page = (tmp_path / 'report.html').read_text()
  assert '</table>' in page and '<img' not in page


def test_every_agent_is_a_dot_among_the_aggregates() -> None:
  small, large = result('catch', returns=(-1, 0, 1)), result('catch/5x5')
  (compared,) = comparison.compare([small, large])
  fig = report_figures.aggregates(compared)
  of_panels = {
    ax.get_title(): [
      sorted(np.round(line.get_xdata(), 3))
      for line in ax.lines
      if line.get_marker() == '.'
    ]
    for ax in fig.axes
  }
  # Returns of -1 to 1 are scores of 0 to 1; those of 5x5 are 0.5 to 0.6.
  assert of_panels['IQM'] == of_panels['mean'] == [[0.25, 0.525, 0.8]]
  assert of_panels['optimality gap'] == [[0.2, 0.475, 0.75]]


def test_figures_of_a_comparison() -> None:
  """Two rules; scores are halves of 1 plus the returns, which rise linearly."""
  returns = {'mine': (-1.0, 0.0, 0.5), 'other': (0.2, 0.2, 0.8)}
  rates = {'mine': (0.1, 0.2), 'other': (0.1,)}
  names = 'catch', 'catch/5x5', 'catch/9x9'
  results = [
    result(name, rule, rate, np.array(returns[rule]) - (rate > 0.1))
    for name in names
    for rule, tried in rates.items()
    for rate in tried
  ]
  (compared,) = comparison.compare(results)
  best = {scores.rule: scores for scores in compared.best}
  assert best['mine'].learning_rate == 0.1

  fig = report_figures.aggregates(compared)
  drawn.check(fig)
  assert 2 <= fig.get_figwidth() / 4 <= 3
  assert 1 <= fig.get_figheight() <= 2
  assert [ax.get_title() for ax in fig.axes] == [
    'IQM',
    'median',
    'mean',
    'optimality gap',
  ]
  for panel, name in zip(fig.axes, report_figures.TITLES):
    assert panel.get_ylim() == (1.5, -0.5)
    lines = {x.get_marker(): [] for x in panel.lines}
    for line in panel.lines:
      lines[line.get_marker()].append(line)
    for row, scores in enumerate(compared.best):
      of_rule = scores.aggregates[name]
      interval, middle, dots = (lines[x][row] for x in ('None', '|', '.'))
      np.testing.assert_allclose(interval.get_xdata(), of_rule.ci95)
      assert middle.get_xdata()[0] == of_rule.value
      assert len(dots.get_xdata()) == 3
      for line in (interval, middle, dots):
        assert {*line.get_ydata()} == {row}
        assert line.get_color() == middle.get_color()
      assert interval.get_alpha() < 1
      assert interval.get_linewidth() > 5
      assert dots.get_markersize() < middle.get_markersize()
    colors = {line.get_color() for line in panel.lines}
    assert len(colors) == 2
    # Only the grid of values is drawn, and dots are inside of the panel.
    assert not any(line.get_visible() for line in panel.get_ygridlines())
    assert len(panel.get_xticks()) <= 5
    inside = [x for line in lines['.'] for x in line.get_xdata()]
    low, high = panel.get_xlim()
    assert low < min(inside) - 0.1 * (max(inside) - min(inside))
    assert high > max(inside) + 0.1 * (max(inside) - min(inside))
  rows = [x.get_text() for x in fig.axes[0].get_yticklabels()]
  assert rows == [scores.rule for scores in compared.best]

  for draw, x_label, y_label, of_rule in (
    (
      report_figures.sample_efficiency,
      'environment steps of one agent',
      'IQM of normalized score',
      lambda x: (x.curve_steps, x.curve),
    ),
    (
      report_figures.profiles,
      'normalized score',
      'fraction of agents above it',
      lambda x: (compared.thresholds, x.profile),
    ),
  ):
    fig = draw(compared)
    drawn.check(fig)
    (panel,) = fig.axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == (x_label, y_label)
    assert sorted(drawn.names(fig)) == ['mine', 'other']
    for line, band in zip(panel.lines, panel.collections, strict=True):
      x, estimate = of_rule(best[line.get_label()])
      np.testing.assert_array_equal(line.get_xdata(), x)
      np.testing.assert_array_equal(line.get_ydata(), estimate.value)
      (path,) = band.get_paths()
      first = path.vertices[path.vertices[:, 0] == x[0], 1]
      assert first.min() == pytest.approx(estimate.low[0])
      assert first.max() == pytest.approx(estimate.high[0])
      assert band.get_alpha() < 0.5
      assert band.get_linewidth() == 0
  low, high = panel.get_ylim()
  assert -0.1 < low < 0 and 1 < high < 1.1

  fig = report_figures.learning_rates(compared)
  drawn.check(fig)
  (panel,) = fig.axes
  assert panel.get_xscale() == 'log'
  assert panel.get_xlabel() == 'learning rate'
  assert panel.get_ylabel() == 'IQM of normalized score'
  assert [x.get_text() for x in panel.get_xticklabels()] == ['0.1', '0.2']
  assert len(panel.get_xticklabels(minor=True)) == 0
  for container in panel.containers:
    line, caps, (bars,) = container
    of_rates = compared.iqms[container.get_label()]
    assert line.get_xdata().tolist() == [*of_rates]
    assert line.get_marker() == 'o'
    assert line.get_ydata().tolist() == [x.value for x in of_rates.values()]
    for segment, estimate in zip(bars.get_segments(), of_rates.values()):
      ends = (
        min(estimate.low, estimate.value),
        max(estimate.high, estimate.value),
      )
      np.testing.assert_allclose(segment[:, 1], ends)
    assert len(caps) == 2
  assert sorted(drawn.names(fig)) == ['mine', 'other']

  fig = report_figures.environments(compared)
  drawn.check(fig)
  assert 2 <= fig.get_figwidth() / 2 <= 3.5
  assert 2 <= fig.get_figheight() / 2 <= 3
  assert fig.get_supylabel() == 'return'
  assert fig.legends[0].get_title().get_text().startswith('over environment')
  *panels, empty = fig.axes
  assert not empty.get_visible()
  assert [ax.get_title() for ax in panels] == [*names]
  for panel in panels:
    assert len(panel.get_xticks()) <= 5
    for line, band in zip(panel.lines, panel.collections, strict=True):
      own = np.array(returns[line.get_label()])[:, None] * [0.5, 1.0]
      assert line.get_xdata().tolist() == [50, 100]
      np.testing.assert_allclose(line.get_ydata(), own.mean(axis=0))
      (path,) = band.get_paths()
      last = path.vertices[path.vertices[:, 0] == 100, 1]
      np.testing.assert_allclose(
        [last.min(), last.max()], [own[:, 1].min(), own[:, 1].max()]
      )


def test_scores_over_settings() -> None:
  scores = {
    'mine': {'a': np.array([0.0, 0.2]), 'b': np.array([0.6, 1.0])},
    'other': {'a': np.array([0.5, 0.7]), 'b': np.array([0.1, 0.2])},
  }
  for name, of_mine in (('width', [0.1, 0.8]), (None, [0.8, 0.1])):
    fig = report_figures.over_settings(scores, name)
    drawn.check(fig)
    (panel,) = fig.axes
    assert panel.get_xlabel() == (name or 'combinations of settings, ranked')
    assert panel.get_ylabel() == 'score at the end of training'
    assert drawn.names(fig) == ['mine', 'other']
    assert (
      fig.legends[0].get_title().get_text() == 'line: mean; dots: one agent'
    )
    means = {x.get_label(): x for x in panel.lines if x.get_marker() == 'o'}
    np.testing.assert_allclose(means['mine'].get_ydata(), of_mine)
    np.testing.assert_allclose(means['other'].get_ydata(), [0.6, 0.15])
    assert means['mine'].get_xdata().tolist() == [1, 2]
    dots = [x for x in panel.lines if x.get_marker() == '.']
    assert len(dots) == 4
    assert all(x.get_alpha() < 0.5 for x in dots)
    first = [x for x in dots if x.get_color() == means['mine'].get_color()]
    values = np.array([x.get_ydata() for x in first])
    np.testing.assert_allclose(values.mean(axis=0), of_mine)
    if name:
      ticks = [x.get_text() for x in panel.get_xticklabels()]
      assert ticks == ['a', 'b']


def test_published_results_are_shown_beside_ours(
  tmp_path: pathlib.Path,
) -> None:
  names = ['atari/pong', 'atari/ms_pacman', 'catch']
  returns = (6951.6, 6951.6, 6951.6)
  results = [result(name, returns=returns) for name in names]
  text = write(results, tmp_path)
  _, after = text.split('### Published results next to ours')
  iqm = comparison.compare(results)[0].best[0].aggregates['iqm'].value
  row = f'| atari | Disco57 | 13.86 | 200,000,000 | {iqm:#.3g} at 100 |'
  assert row in after
  row = '| atari/ms_pacman | Disco103 | 101,290 | 200,000,000 | 6,952 at 100 |'
  assert row in after
  assert 'bigfish' not in after
  assert 'Assumed are sticky actions' in after


def test_ours_are_read_at_the_steps_of_published_results(
  tmp_path: pathlib.Path,
) -> None:
  # 1.0 every million steps.
  steps = np.linspace(0, 3e7, 301)
  long = result('crafter', returns=(30.0,), steps=steps.tolist())
  text = write([long, result('nethack/challenge')], tmp_path)
  assert '| crafter | Disco103 | 6.59 | 1,000,000 | 1.00 |' in text
  assert '| crafter | Disco103 | 14.56 | 20,000,000 | 20.0 |' in text
  long.curve[1][0, :20] = np.nan
  late = write([long], tmp_path)
  assert '| 6.59 | 1,000,000 | no episode of some agent had ended |' in late
  # Of 0.0, 0.1 and 0.2 after all steps, as the paper's are not known.
  assert '| IMPALA | 188.95 | not stated | 0.100 at 100 |' in text


def test_the_paper_has_no_score_beside_another_task(
  tmp_path: pathlib.Path,
) -> None:
  names = ['nethack/score', 'sokoban', 'procgen/easy/bigfish']
  text = write([result(name) for name in names], tmp_path)
  assert 'Published results' not in text


def test_sokoban_has_solved_levels_and_mean_returns(
  tmp_path: pathlib.Path,
) -> None:
  run = tmp_path / 'run'
  run.mkdir()
  with metrics.MetricsWriter(run) as writer:
    for seed in range(2):
      row = {'update': 1, 'seed': seed, 'environment_steps': 10}
      writer.write([{**row, 'return': 4 + seed, 'success': 0.5}])
  read = comparison.read_result(run / 'metrics.csv', 'sokoban', 'mine', 0.1, 1)
  text = write([read], tmp_path)
  assert '| sokoban | 0.500 [0.500, 0.500] | 0.00 | 1.00 |' in text
  assert '| sokoban, mean return | 4.50 [4.00, 5.00] |  |  |' in text
  assert '| mean | mine | success scored 0 | success scored 1 |' in text
  fig = report_figures.environments(comparison.compare([read])[0])
  assert fig.get_supylabel() == 'success'


def test_large_numbers_have_no_exponent() -> None:
  for value, text in (
    (999.4, '999'),
    (-999.7, '-1,000'),
    (12345.6, '12,346'),
  ):
    estimate = statistics.Estimate(np.array(value), None, None)
    assert report.format_estimate(estimate) == text


def test_a_rule_without_any_scores_is_named(tmp_path: pathlib.Path) -> None:
  results = [
    comparison.Result('catch', 'broken', 0.1, failure='diverged'),
    comparison.Result('catch', 'worse', 0.1, failure='diverged'),
  ]
  text = write(results, tmp_path)
  assert 'No learning rate has all scores: broken, worse.' in text
  assert text.count('diverged') == 2
  assert not list((tmp_path / 'figures').iterdir())


def test_a_failed_run_is_listed_once(tmp_path: pathlib.Path) -> None:
  """Although the protocol compares it after several numbers of updates."""
  failed = comparison.Result('catch', 'broken', 0.1, failure='diverged')
  report.write(2 * comparison.compare([failed]), SETUP, tmp_path)
  assert (tmp_path / 'report.md').read_text().count('diverged') == 1


def test_special_characters_are_escaped(tmp_path: pathlib.Path) -> None:
  results = [
    comparison.Result(
      'catch', 'a|b', 0.1, failure='1 < 2 & <i> [x](javascript:y)'
    )
  ]
  cell = (
    '| catch, a\\|b, learning rate 0.1: 1 &lt; 2 &amp; &lt;i&gt; '
    '[x\\](javascript:y) |'
  )
  assert cell in write(results, tmp_path).splitlines()
  text = (tmp_path / 'report.html').read_text()
  cell = (
    'catch, a|b, learning rate 0.1: 1 &lt; 2 &amp; &lt;i&gt; [x](javascript:y)'
  )
  assert f'<td>{cell}</td>' in text
  assert '<i>' not in text


def test_blocks_of_markdown_are_separated_by_one_blank_line(
  tmp_path: pathlib.Path,
) -> None:
  text = write([result('catch'), result('catch', 'b')], tmp_path)
  assert '\n\n\n' not in text
  lines = text.splitlines()
  for before, after in zip(lines, lines[1:]):
    same_table = before.startswith('|') and after.startswith('|')
    assert same_table or '' in (before, after)
