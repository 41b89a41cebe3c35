"""The programs in examples/, which the documentation shows."""

from collections.abc import Callable
import pathlib
import re
import sys
from types import ModuleType

import conformance
import jax
import numpy as np
import pytest

import disco_rl
from disco_rl.environments import wrapping
from disco_rl.networks import torsos
from examples import cartpole
from examples import increasing_digits
from examples import other_libraries
from examples import own_environment
from examples import own_loop
from examples import own_network
from examples import own_rule
from examples import tic_tac_toe

Run = Callable[..., str]


@pytest.fixture
def run(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
  """Runs a program with two updates; returns its output."""

  def run_main(program: ModuleType, *flags: str) -> str:
    flags = ('--rule=policy_gradient', '--updates=2', *flags)
    monkeypatch.setattr(sys, 'argv', [program.__name__, *flags])
    program.main()
    return capsys.readouterr().out

  return run_main


def test_cartpole(run: Run, tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'agent.npz'
  output = run(cartpole, f'--save={path}')
  assert path.is_file()
  assert re.search(r'^update 2: return \d', output)
  assert re.search(r'^mean return of ten episodes: \d', output, re.MULTILINE)


def test_rewards_of_digits() -> None:
  digits = np.array([[3, 5, 5, 9, 0, 2]]).T
  rollout = increasing_digits.judge(
    digits.astype(np.int32), np.zeros((6, 1, increasing_digits.NUM_DIGITS))
  )
  np.testing.assert_array_equal(rollout.reward[:, 0], [0, 1, 0, 1, 0])
  np.testing.assert_array_equal(rollout.observation[:, 0], [10, 3, 5, 5, 9, 0])
  np.testing.assert_array_equal(rollout.is_terminal[:, 0], [0, 0, 0, 0, 1])
  assert increasing_digits.accuracy(rollout) == 0.5


@pytest.mark.slow
def test_the_transformer_learns() -> None:
  rule = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=4.0)
  network, params, accuracies = increasing_digits.train(
    rule, seed=0, curriculum=((4, 100),), learning_rate=1e-2
  )
  assert np.mean(accuracies[:5]) < 0.55
  assert np.mean(accuracies[-5:]) > 0.8
  # The learner recomputes the sampled logits: no token sees a later one.
  rollout = increasing_digits.write(network, params, jax.random.key(1), 4, 32)
  outputs, _ = network.unroll(params, rollout)
  np.testing.assert_allclose(
    outputs['logits'], rollout.logits, rtol=1e-3, atol=1e-4
  )


@pytest.mark.parametrize('seed', [0, 1])
def test_the_corridor_pays_at_its_open_end(seed: int) -> None:
  environment = own_environment.Corridor(length=5)
  key = jax.random.key(seed)
  for action in (0, 1):
    state, observation = environment.reset(key)
    is_open = state.goal == 4 * action
    np.testing.assert_array_equal(np.argmax(observation, 1), [2, state.goal])
    for is_last in (False, True):
      state, timestep = environment.step(state, action, key)
      assert timestep.is_last == timestep.is_terminal == is_last
      assert timestep.reward == is_last * (1 if is_open else -1)


def test_the_corridor_has_a_time_limit() -> None:
  environment = own_environment.Corridor(max_steps=3)
  key = jax.random.key(0)
  state, _ = environment.reset(key)
  for is_last in (False, False, True):
    state, timestep = environment.step(state, 1 - state.num_steps % 2, key)
    assert timestep.is_last == is_last
    assert not timestep.is_terminal


def test_corridors_keep_to_the_protocol() -> None:
  conformance.check(lambda _: own_environment.Corridor(), num_steps=40)
  conformance.check(
    lambda seed: wrapping.recognize(own_environment.HostCorridor).build(
      96, seed
    ),
    num_steps=20,
  )


@pytest.mark.parametrize('flags', [[], ['--on_host']])
def test_own_environment(flags: list[str], run: Run) -> None:
  output = run(own_environment, *flags)
  assert re.fullmatch(r'update 2: return -?\d\.\d\d\n', output)


def test_outcomes_of_tic_tac_toe() -> None:
  environment = tic_tac_toe.TicTacToe()
  step = jax.jit(environment.step)
  board = np.array([1, 1, 0, -1, -1, 0, 0, 0, 0], np.int32)
  _, timestep = step(board, 2, jax.random.key(0))
  assert timestep.reward == 1.0
  assert timestep.is_terminal
  _, timestep = step(board, 0, jax.random.key(0))  # The cell is taken.
  assert timestep.reward == -1.0
  assert timestep.is_terminal
  # The opponent wins by one of its four moves.
  rewards = {
    float(step(board, 8, jax.random.key(seed))[1].reward) for seed in range(30)
  }
  assert rewards == {0.0, -1.0}
  after, timestep = step(board, 8, jax.random.key(0))
  np.testing.assert_array_equal(timestep.observation['action_mask'], after == 0)


@pytest.mark.slow
def test_tic_tac_toe(run: Run) -> None:
  conformance.check(lambda _: tic_tac_toe.TicTacToe(), num_steps=20)
  assert re.fullmatch(
    r'before: mean return .*\nafter 2 updates: mean return .*\n',
    run(tic_tac_toe),
  )


@pytest.mark.slow
def test_own_network() -> None:
  returns = own_network.train('policy_gradient', updates=12)
  assert returns.shape == (2,)
  assert np.isfinite(returns).all()
  config = torsos.TorsoConfig('residual')
  assert config.kind == 'residual'


@pytest.mark.slow
def test_own_loop() -> None:
  env = own_loop.catch.Catch(4, 3)
  rule = disco_rl.load_rule('general')
  network = own_loop.make_network(env.spec, rule, width=16)
  learner = disco_rl.Learner(network, env.spec, rule, learning_rate=1e-2)
  _, returns = own_loop.train_agents(env, network, learner, 60, seeds=2)
  assert returns.shape == (2, 60)
  # Random play earns -1/3.
  np.testing.assert_allclose(returns[:, :5].mean(), -0.33, atol=0.15)
  assert (returns[:, -10:].mean(axis=1) > 0.3).all()


def test_own_rule_learns() -> None:
  returns = own_rule.train(own_rule.LambdaActorCritic(), updates=200)
  assert returns[0] < -0.2
  assert returns[-1] > 0.5


@pytest.mark.slow
def test_a_search_with_optuna(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
  pytest.importorskip('optuna')
  from examples import optuna_search

  flags = ('--rule=policy_gradient', '--trials=2', '--steps=4', '--parts=2')
  monkeypatch.setattr(sys, 'argv', ['optuna_search', *flags])
  optuna_search.main()
  output = capsys.readouterr().out
  assert re.match(r"mean return -?\d\.\d\d with {'learning_rate': ", output)


@pytest.mark.parametrize('library', ['minigrid', 'navix', 'jumanji', 'pgx'])
@pytest.mark.slow
def test_other_libraries(
  library: str,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  pytest.importorskip(library)
  flags = (f'--library={library}', '--rule=policy_gradient', '--steps=2')
  monkeypatch.setattr(sys, 'argv', ['other_libraries', *flags])
  other_libraries.main()
  output = capsys.readouterr().out
  assert re.search('^before: mean return .*\nafter 2 steps: mean', output)
