"""Tests of disco_rl/analysis/pictures.py and of launch/analyse.py."""

import pathlib
from typing import Any

import launching
import numpy as np
from PIL import Image
import pytest
import small

from disco_rl.analysis import ablation
from disco_rl.analysis import pictures
from disco_rl.update_rules import weights
from launch import analyse

pytestmark = pytest.mark.usefixtures('quick_compilation')

AGENT = (
  f'--config={launching.REPOSITORY}/configs/evaluate.py:quickstart',
  '--config.environment=catch/4x3',
  '--config.unroll_length=4',
  '--config.batch_size=2',
  '--config.num_environments=2',
  '--config.replay_capacity=2',
  '--config.hidden_sizes=4',
  '--config.action_model_lstm=4',
  '--config.action_model_head=4',
  '--config.num_bins=11',
  '--config.updates=2',
  '--config.seeds=2',
)


@pytest.fixture
def rule(tmp_path: pathlib.Path) -> pathlib.Path:
  path = tmp_path / 'rule.npz'
  weights.save(path, small.nest(small.arrays()))
  return path


def test_a_rule_is_drawn(
  rule: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  trained = []
  curve = pictures._curve

  def curve_of_one(agent: Any, *arguments: Any) -> Any:
    # The second would compile as long, and says no more.
    trained.append(agent.rule)
    if len(trained) > 1:
      return np.arange(3), np.ones((2, 3))
    return curve(agent, *arguments)

  monkeypatch.setattr(pictures, '_curve', curve_of_one)
  launching.call(analyse, tmp_path, *AGENT, f'--config.rule={rule}')
  names = ('targets', 'trace', 'horizon', 'without_predictions')
  paths = [tmp_path / f'{name}.png' for name in names]
  assert capsys.readouterr().out.split() == [f'{path}' for path in paths]
  for path in paths:
    with Image.open(path) as picture:
      assert len(picture.convert('L').getcolors() or ()) > 10, path
  assert [isinstance(x, ablation.Blind) for x in trained] == [False, True]


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (['--config.rule=actor_critic'], 'rule=actor_critic is made by hand'),
    (
      ['--config.environment=gymnasium/CartPole-v1'],
      'environment=gymnasium/CartPole-v1 steps on the host: choose',
    ),
    (
      ['--config.environments=catch/4x3,catch/5x4'],
      "environments='catch/4x3,catch/5x4' would be ignored here",
    ),
  ],
)
def test_what_cannot_be_drawn_is_refused(
  changes: list[str], message: str, rule: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  flags = (*AGENT, f'--config.rule={rule}', *changes)
  assert message in launching.error(analyse, tmp_path, *flags)
