"""Parts of a training run, without training."""

import functools
from typing import Any
from unittest import mock

import jax.numpy as jnp
import pytest

from disco_rl.agent import episodes
from disco_rl.environments import base
from disco_rl.training import config as training_config
from disco_rl.training import runner


@pytest.mark.parametrize('updates', [10, 1000])
@pytest.mark.parametrize('steps', [1, 1023, 1025, 100_000])
def test_a_budget_in_steps_is_rounded_up_to_whole_rollouts(
  steps: int, updates: int
) -> None:
  # PPO makes 32 updates of each rollout. Updates of the starting point that are
  # no whole rollouts do not matter to a budget in steps.
  config = training_config.config_of(
    {
      'rule': 'ppo',
      'environment': 'catch',
      'num_environments': 16,
      'unroll_length': 64,
      'updates_per_rollout': 32,
      'updates': updates,
      'steps': steps,
    }
  )
  rollouts = -(-steps // (16 * 64))
  assert config.updates == rollouts * 32
  assert config.environment_steps == rollouts * 16 * 64


def test_successes_are_episodes_above_a_threshold(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  fraction = lambda returns, threshold: jnp.mean(returns > threshold)
  monkeypatch.setattr(episodes, 'fraction_above', fraction)
  state: Any = mock.Mock()
  # 120 steps of Sokoban cost 12, a box pays 1, the solution 10 more.
  state.acting.episodes = jnp.array([[-10.0, 1.9, -9.0], [2.0, 1.9, 13.0]])
  run: Any = mock.Mock()
  run._config.environment = 'sokoban/held_out'
  rates = runner.TrainingRun._success_rates(run, state)
  assert rates == pytest.approx([1 / 3, 1])
  run._config.environment = 'catch'
  assert runner.TrainingRun._success_rates(run, state) is None


@pytest.mark.parametrize('is_saved', [False, True])
def test_environments_that_were_not_saved_begin_again(
  is_saved: bool,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  environment = mock.Mock(spec=base.HostEnvironment)
  make = mock.Mock(return_value=environment)
  monkeypatch.setattr(runner.environment_registry, 'make', make)
  after = lambda seed, update: 100 * seed + update
  monkeypatch.setattr(runner.adapters, 'seed_after', after)
  counter = mock.Mock()
  monkeypatch.setattr(runner.achievements, 'Counter', counter)
  run: Any = mock.Mock()
  replaced: list[Any] = []
  cohort = run._training.cohort
  cohort.replace_environments.side_effect = lambda make: replaced.append(make())
  run._make_again = functools.partial(runner.TrainingRun._make_again, run)
  config = run._config
  config.configure_mock(environment='mine', seeds=2, seed=3, preprocessing='P')
  config.agent.num_environments = 4
  saved: dict[str, Any] = {runner.TRAIN_STATE: 'state', runner.BEST: 'best'}
  if is_saved:
    saved['environments'] = 'their states'
  found = runner.TrainingRun._resume(run, 7, saved)
  cohort.resume.assert_called_once_with('state', saved.get('environments'))
  assert found is cohort.resume.return_value
  assert run._evaluator.best == 'best'
  told = capsys.readouterr().err
  if is_saved:
    make.assert_not_called()
    assert not told and not replaced
    return
  assert 'mine begins new episodes, with seeds of their own' in told
  assert 'fail' not in told
  make.assert_called_once_with('mine', 8, 307, 'P')
  assert replaced == [[environment]]
  assert run._environment is environment
  counter.assert_called_once_with(environment, 2)
  assert run._achievements is counter.return_value
