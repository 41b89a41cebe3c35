"""Tests of the settings of launch.evaluate: errors, and all variants."""

import pathlib
import re
from typing import Any

from evaluating import CATCH
from evaluating import CONFIG
from evaluating import error
import jax
import launching
import pytest

from configs import evaluate as configs
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import runner
from disco_rl.evaluation import training
from disco_rl.update_rules import weights
from launch import to_records

pytestmark = pytest.mark.usefixtures('quick_compilation')


@pytest.mark.parametrize('missing', ['config', 'workdir'])
def test_missing_flags(tmp_path: pathlib.Path, missing: str) -> None:
  given = {'config': f'{CONFIG}:catch', 'workdir': f'--workdir={tmp_path}'}
  del given[missing]
  ended = launching.run_python('-m', 'launch.evaluate', *given.values())
  assert ended.returncode == 1
  assert re.fullmatch(f'error: .*--{missing} must have.*\n', ended.stderr)
  assert not ended.stdout


@pytest.mark.parametrize(
  'argument, message',
  [
    ('environment=cach', "'cach'. Nearest names: catch"),
    ('environment=gymnasium/CartPol-v1', 'gymnasium/CartPole-v1'),
    ('rule=actor_critc', "'actor_critc'. Nearest names: actor_critic"),
    ('rule=missing/rule.npz', 'missing/rule.npz'),
    ('rule=setup.npz', 'setup.npz'),
    ('updates=0', 'updates=0 must be at least 1'),
    ('replay_capacity=15', 'replay_capacity=15 .* nearest is 16'),
    # Lists, of which any makes a sweep.
    ('environments=catch,cach', "'cach'. Nearest names: catch"),
    ('environments=catch,catch', 'environments has catch and catch, which'),
    ('environments=,', 'environments is empty'),
    ('rules=actor_critic,actor_critc', 'Nearest names: actor_critic'),
    ('rules=a/b.npz,a-b.npz', 'a/b.npz and a-b.npz.* share the folder a-b:'),
    ('rules=missing/rule.npz', 'missing/rule.npz'),
    ('learning_rates=1e-3,fast', "'fast', which is no number"),
    ('learning_rates=1e-3,0.001', '0.001 and 0.001, which'),
    ('learning_rates=1e-3,-1', 'learning_rate=-1.0 must be positive'),
  ],
)
def test_impossible_settings(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  argument: str,
  message: str,
) -> None:
  def fail(*_: Any) -> None:
    raise AssertionError('too late: something is being compiled')

  monkeypatch.setattr(training.DeviceTraining, 'init', fail)
  monkeypatch.setattr(jax.stages.Lowered, 'compile', fail)
  workdir = tmp_path / 'run'
  assert re.search(message, error(workdir, *CATCH, f'--config.{argument}'))
  assert not workdir.exists()


@pytest.mark.parametrize('variant', configs.VARIANTS)
class TestVariants:
  def test_everything_can_be_built(
    self,
    variant: str,
    disco103_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
  ) -> None:
    monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(disco103_path.parent))
    settings = configs.get_config(variant).to_dict()
    # Less to allocate; shapes are checked as before.
    settings.update(num_environments=1, on_policy_share=0, replay_capacity=2)
    config = to_records.evaluation(settings)
    try:
      environment_registry.validate(config.environment)
    except ImportError as error:
      pytest.skip(str(error))
    runner.Evaluation(config).close()

  def test_the_docstring_names_it(self, variant: str) -> None:
    assert configs.__doc__
    assert f'\n  {variant} ' in configs.__doc__
