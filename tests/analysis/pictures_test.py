"""Tests of disco_rl/analysis/pictures.py and of launch/analyse.py."""

import functools
import pathlib
from typing import Any
from unittest import mock

import evaluating
import launching
import numpy as np
from PIL import Image
import pytest
import small

from disco_rl.analysis import ablation
from disco_rl.analysis import pictures
from disco_rl.analysis import probes
from disco_rl.runtime import metrics
from launch import analyse

AGENT = (
  *evaluating.CATCH,
  '--config.seeds=1',
  '--config.updates=4',
  '--config.log_every=1',
)
NAMES = ('targets', 'trace', 'gradients', 'probes', 'horizon', 'reliance')


call = functools.partial(launching.call_main, analyse)
error = functools.partial(launching.error_of_main, analyse)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
  """A run with a small rule that has y and z."""
  small.save(tmp_path / 'rule.npz', small.arrays())
  rule = f'--config.rule={tmp_path / "rule.npz"}'
  evaluating.launch(tmp_path / 'run', *AGENT, rule)
  return tmp_path / 'run'


@pytest.mark.slow
def test_a_run_is_drawn(
  run: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  trained = []
  curve = pictures._curve

  def curve_of_one(subject: Any, rule: Any, updates: int) -> Any:
    # The second would compile as long, and says no more.
    trained.append(rule)
    if len(trained) > 1:
      return np.arange(3), np.ones((1, 3))
    steps, returns = curve(subject, rule, updates)
    assert steps[-1] == subject.agent.environment_steps(updates)
    return steps, returns

  monkeypatch.setattr(pictures, '_curve', curve_of_one)
  quick = probes.ProbeConfig((8,), (8,), steps=3)
  monkeypatch.setattr(pictures, '_PROBES', quick)
  before = launching.contents(run)
  call(workdir=str(run), recorded_steps=16, curve_updates=2, life_updates=2)
  paths = [
    run / 'analysis' / f'{name}.png'
    for name in (*NAMES, 'without_predictions', 'terms')
  ]
  page = run / 'analysis' / 'explore.html'
  assert 'lstm/linear_4/w' in page.read_text()
  table = run / 'analysis' / 'terms.csv'
  printed = capsys.readouterr().out.split()
  assert printed == [f'{x}' for x in (page, *paths, table)]
  assert len(table.read_text().splitlines()) == 1 + 2
  for path in paths:
    with Image.open(path) as picture:
      assert len(picture.convert('L').getcolors() or ()) > 10, path
  assert [rule.extent for rule in trained] == ['y_and_z', 'all']
  assert all(isinstance(rule, ablation.Blind) for rule in trained)
  after = launching.contents(run)
  assert {name: after[name] for name in before} == before
  assert len(after) == len(before) + len(paths) + 2


def test_curves_need_metrics_of_the_run(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    row = {'update': 10, 'seed': 0, 'environment_steps': 80, 'return': 0.5}
    writer.write([row])
  subject = mock.Mock(agent=mock.Mock(steps_per_update=8))
  subject.agent.environment_steps = lambda updates: 8 * updates
  with pytest.raises(ValueError, match='^9 updates are too few .* after 10.'):
    pictures.without_predictions(subject, tmp_path, 9)


def test_what_cannot_be_drawn_is_refused(tmp_path: pathlib.Path) -> None:
  assert 'Name the run' in error()
  assert 'holds no run of disco-rl train' in error(workdir=str(tmp_path))
  evaluating.launch(tmp_path, *AGENT)
  message = 'actor_critic, is hand-designed'
  assert message in error(workdir=str(tmp_path))
