"""Tests of disco_rl/analysis/pictures.py and of launch/analyse.py."""

import pathlib

import launching
from PIL import Image
import pytest
import small

from disco_rl.networks import meta_network
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


def save_rule(
  path: pathlib.Path, config: meta_network.MetaNetworkConfig
) -> None:
  weights.save(path, small.nest(small.arrays(config)))


def test_a_rule_is_drawn(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  rule = tmp_path / 'rule.npz'
  save_rule(rule, small.META_NETWORK)
  launching.call(analyse, tmp_path, *AGENT, f'--config.rule={rule}')
  names = ('targets', 'trace', 'horizon', 'without_predictions')
  paths = [tmp_path / f'{name}.png' for name in names]
  assert capsys.readouterr().out.split() == [f'{path}' for path in paths]
  for path in paths:
    with Image.open(path) as picture:
      assert len(picture.convert('L').getcolors() or ()) > 10, path


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (['--config.rule=actor_critic'], 'rule=actor_critic is made by hand'),
    (
      ['--config.environment=gymnasium/CartPole-v1'],
      'environment=gymnasium/CartPole-v1 steps on the host: choose',
    ),
  ],
)
def test_what_cannot_be_drawn_is_refused(
  changes: list[str], message: str, tmp_path: pathlib.Path
) -> None:
  rule = tmp_path / 'rule.npz'
  save_rule(rule, small.META_NETWORK)
  flags = (*AGENT, f'--config.rule={rule}', *changes)
  assert message in launching.error(analyse, tmp_path, *flags)
