"""Budgets, several agents, evaluations and loggers of `disco_rl.Trainer`."""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import functools
import pathlib
from typing import Any

import gymnasium
import jax
import launching
import numpy as np
import pytest
import small
import train_runs

import disco_rl
from disco_rl.agent import agent as agent_lib
from disco_rl.environments.host import adapters
from disco_rl.runtime import files
from disco_rl.runtime import loggers
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from launch import train as launcher

RULE = disco_rl.load_rule('actor_critic', num_bins=41, max_abs_value=3.0)
# Those of `train_runs.CATCH`.
AGENT = {
  'learning_rate': 0.01,
  'unroll_length': 6,
  'batch_size': 8,
  'num_environments': 2,
  'replay_capacity': 16,
  'hidden_sizes': (16,),
  'action_model_lstm': 8,
  'action_model_head': 8,
}
SEVERAL = (
  *(x for x in train_runs.CATCH if 'updates' not in x and 'seeds' not in x),
  *('--config.seeds=5', '--config.evaluate_every=100'),
  '--config.evaluate_episodes=3',
)


@pytest.mark.parametrize('min_replay_batches', [0.0, 1.5])
@pytest.mark.parametrize('updates_per_rollout', [1, 3])
def test_a_budget_is_the_least_that_suffices(
  min_replay_batches: float, updates_per_rollout: int
) -> None:
  config = agent_lib.AgentConfig(
    unroll_length=3,
    batch_size=4,
    num_environments=2,
    replay_capacity=20,
    updates_per_rollout=updates_per_rollout,
    min_replay_batches=min_replay_batches,
  )
  # Replay needs three rollouts before the first update; it may have some.
  most = 2 if min_replay_batches else 0
  for added, fill in ((0, most), (2, max(0, most - 1)), (6, 0), (20, 0)):
    assert config.fill_rollouts(added) == fill
    for asked in (1, 5, 6, 7, 30):
      made = lambda n, fill=fill: 6 * (fill + n // updates_per_rollout)
      updates = config.updates_for(asked, 1, fill)
      assert config.updates_for(4 * asked - 3, 4, fill) == updates
      assert config.whole(updates) == updates
      assert made(updates) >= asked
      less = updates - updates_per_rollout
      assert less == 0 or made(less) < asked


@pytest.fixture(scope='module')
def trainer() -> disco_rl.Trainer:
  return disco_rl.Trainer('catch/4x3', RULE, **small.AGENT, seeds=2)


def test_budgets_are_rounded_and_said(
  trainer: disco_rl.Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
  before = trainer.updates
  trainer.train(steps=20, show_progress=False)
  assert trainer.updates == before + 3  # A rollout has 2 * 4 steps.
  said = '20 environment steps are rounded up to 24, to whole rollouts.\n'
  assert capsys.readouterr().err == said
  trainer.train(steps=16, show_progress=False)
  assert trainer.updates == before + 5
  assert not capsys.readouterr().err
  for budget in ({}, {'steps': 8, 'updates': 1}):
    with pytest.raises(ValueError, match='Say once how long .*steps=100_000'):
      trainer.train(**budget)


def test_both_budgets_are_refused_by_the_command(
  tmp_path: pathlib.Path,
) -> None:
  message = train_runs.error(tmp_path, *train_runs.CATCH, '--config.steps=100')
  assert '--config.steps and --config.updates both say how long' in message


def test_bars_count_environment_steps(
  trainer: disco_rl.Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
  steps = 8 * trainer.updates
  trainer.train(2)
  assert f' {steps + 16}/{steps + 16} ' in capsys.readouterr().err


def test_several_agents_have_an_axis(trainer: disco_rl.Trainer) -> None:
  rows: list[Mapping[str, float]] = []
  series = trainer.train(2, log_every=1, callback=rows.append)
  assert series['return'].shape == series['loss'].shape == (2, 2)
  assert series['update'].shape == series['environment_steps'].shape == (2,)
  assert [row['seed'] for row in rows] == [0, 1, 0, 1]
  assert [row['loss'] for row in rows] == series['loss'].T.ravel().tolist()
  for act in (trainer.evaluate, trainer.policy, lambda: trainer.policy(2)):
    with pytest.raises(ValueError, match=r'seeds 0 to 1: .* trainer.policy\(0'):
      act()


def test_several_agents_in_a_file(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'agents.npz'
  trainer.save(path)
  for seed in (0, 1):
    loaded = disco_rl.load_policy(path, seed=seed)
    jax.tree.map(
      np.testing.assert_array_equal, loaded.params, trainer.policy(seed).params
    )
    assert loaded.description.seed == seed
  with pytest.raises(ValueError, match='no agent with seed 2: .* 0 to 1'):
    disco_rl.load_policy(path, seed=2)
  expected = trainer.train(2)
  trainer.load(path)
  np.testing.assert_array_equal(trainer.train(2)['loss'], expected['loss'])
  one = disco_rl.Trainer('catch/4x3', RULE, **small.AGENT)
  with pytest.raises(ValueError, match='seeds was 2, is 1'):
    one.load(path)


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A run of the command with five agents and evaluations."""
  workdir = tmp_path_factory.mktemp('several') / 'run'
  train_runs.launch(workdir, *SEVERAL, '--config.steps=235')
  return workdir


def test_a_trainer_and_the_command_agree(run: pathlib.Path) -> None:
  trainer = disco_rl.Trainer('catch/4x3', RULE, **AGENT, seeds=5)
  train = functools.partial(
    disco_rl.Trainer.train,
    steps=235,
    log_every=5,
    evaluate_every=100,
    evaluate_episodes=3,
  )
  series = train(trainer)
  # Evaluations are after the first rollouts with at least 100 and 200 steps.
  np.testing.assert_array_equal(series['update'], [5, 9, 10, 15, 17, 20])
  assert np.isfinite(series['evaluation_return'][:, [1, 4]]).all()
  assert np.isnan(series['evaluation_return'][:, [0, 2, 3, 5]]).all()
  columns = metrics.read(run / 'metrics.csv')
  for name, values in series.items():
    of_run = columns[name].reshape(-1, 5).T
    np.testing.assert_allclose(
      of_run, np.broadcast_to(values, of_run.shape), 1e-4
    )
  for seed in (None, 3):
    best = trainer.best_policy(seed)
    of_run = disco_rl.load_policy(run, seed=seed, best=True)
    for name in ('seed', 'seeds', 'environment_steps'):
      expected = getattr(best.description, name)
      assert getattr(of_run.description, name) == expected
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-5),
      of_run.params,
      best.params,
    )
  own = series['evaluation_return'][3, [1, 4]]
  assert best.evaluate(3, seed=3).mean == own.max()
  alone = disco_rl.Trainer('catch/4x3', RULE, **AGENT, seed=3)
  for name, values in train(alone).items():
    expected = series[name][3] if series[name].ndim == 2 else series[name]
    np.testing.assert_allclose(values, expected, 1e-4)


def test_evaluations_resume_to_the_same_results(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  train_runs.launch(tmp_path / 'run', *SEVERAL, '--config.updates=12')
  train_runs.launch(tmp_path / 'run', *SEVERAL, '--config.updates=20')
  read = lambda folder: metrics.read(folder / 'metrics.csv')
  expected, found = read(run), read(tmp_path / 'run')
  is_common = ~np.isin(found['update'], [12])
  for name in ('evaluation_return', 'loss'):
    is_same = found['update'][is_common] <= 10
    np.testing.assert_array_equal(
      found[name][is_common][is_same], expected[name][: is_same.sum()]
    )
  np.testing.assert_array_equal(
    found['evaluation_return'][found['update'] == 17],
    expected['evaluation_return'][expected['update'] == 17],
  )
  one, other = (
    disco_rl.load_policy(x, best=True) for x in (run, tmp_path / 'run')
  )
  jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


@pytest.mark.slow
def test_a_killed_run_has_the_same_evaluations_and_best_agents(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  arguments = (*SEVERAL, '--config.steps=235')
  launching.kill(launcher, tmp_path, 'update', 15, *arguments)
  train_runs.launch(tmp_path, *arguments)
  assert (tmp_path / 'metrics.csv').read_bytes() == (
    run / 'metrics.csv'
  ).read_bytes()
  for seed in range(5):
    one, other = (
      disco_rl.load_policy(x, seed=seed, best=True) for x in (run, tmp_path)
    )
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


@pytest.mark.slow
def test_an_agent_on_the_host_does_not_depend_on_the_number_of_agents() -> None:
  found = {}
  for seeds in (2, 3):
    with contextlib.closing(
      disco_rl.Trainer(
        lambda: gymnasium.make('CartPole-v1'),
        RULE,
        **{**AGENT, 'unroll_length': 8},
        seed=3,
        seeds=seeds,
      )
    ) as trainer:
      series = trainer.train(
        updates=20, log_every=10, evaluate_every=160, evaluate_episodes=2
      )
      assert series['evaluation_return'].shape == (seeds, 2)
      assert np.isfinite(series['evaluation_return']).all()
      best = [trainer.best_policy(seed).params for seed in (3, 4)]
      found[seeds] = {name: x[:2] for name, x in series.items()}, best
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-5),
    found[2],
    found[3],
  )


class Endless(gymnasium.Env):
  """Counts all steps of all environments, of which one may fail."""

  observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
  action_space = gymnasium.spaces.Discrete(2)
  steps = 0
  failing = 0

  def reset(self, **_: Any) -> Any:
    return np.zeros(3, np.float32), {}

  def step(self, _: Any) -> Any:
    Endless.steps += 1
    if Endless.steps == Endless.failing:
      raise OSError('out of order')
    return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.fixture
def make_endless(
  monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], disco_rl.Trainer]:
  """Makes agents whose first update needs 2 batches of 8: 8 rollouts of 2."""
  monkeypatch.setattr(Endless, 'steps', 0)
  settings = {**small.AGENT, 'min_replay_batches': 2.0}
  return functools.partial(disco_rl.Trainer, Endless, RULE, **settings)


def test_budgets_contain_the_steps_that_are_left_to_fill_replay(
  make_endless: Callable[[], disco_rl.Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
  rollout = 2 * 4
  monkeypatch.setattr(Endless, 'failing', 3 * rollout + 1)
  with contextlib.closing(make_endless()) as trainer:
    with pytest.raises(adapters.HostEnvironmentError, match='out of order'):
      trainer.train(4, show_progress=False)
    assert (trainer.updates, trainer._steps) == (0, 3 * rollout)
    trainer.train(steps=10 * rollout, show_progress=False)
    # Four more rollouts fill replay.
    assert (trainer.updates, trainer._steps) == (6, 13 * rollout)


def test_steps_that_fill_the_replay_of_a_loaded_agent_count(
  make_endless: Callable[[], disco_rl.Trainer],
) -> None:
  with (
    contextlib.closing(make_endless()) as first,
    contextlib.closing(make_endless()) as other,
  ):
    first.train(2, show_progress=False)
    assert first._steps == Endless.steps == 9 * 2 * 4
    other.take_over(first._train_state, first.updates, first._steps)
    # As with a new agent, they are part of a budget.
    series = other.train(steps=9 * 2 * 4, show_progress=False)
    assert other.updates == first.updates + 2
    assert series['environment_steps'] == [Endless.steps] == [18 * 2 * 4]


def test_runs_without_evaluations_have_no_best(tmp_path: pathlib.Path) -> None:
  train_runs.launch(tmp_path, *train_runs.CATCH, '--config.updates=1')
  with pytest.raises(ValueError, match='no best agent: .*evaluate_every=STEPS'):
    disco_rl.load_policy(tmp_path, best=True)


class Mine:
  """Remembers what it gets."""

  def __init__(self, run: loggers.Run):
    self.settings, self.logged = run.settings, {}
    MADE.append(self)

  def log(self, step: int, scalars: Mapping[str, float]) -> None:
    self.logged[step] = dict(scalars)

  def close(self, has_failed: bool) -> None:
    assert not has_failed


MADE: list[Mine] = []


def test_loggers(
  trainer: disco_rl.Trainer,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setitem(loggers._FACTORIES, 'mine', Mine)
  since = trainer.updates
  for _ in range(2):
    series = trainer.train(2, loggers='mine', workdir=tmp_path / 'run')
  assert [[*x.logged] for x in MADE] == [[since + 2], [since + 4]]
  assert MADE[1].settings['environment'] == 'catch/4x3'
  assert MADE[1].settings['batch_size'] == 8
  logged = MADE[1].logged[since + 4]
  assert logged['loss/seed_1'] == series['loss'][1, -1]
  columns = metrics.read(tmp_path / 'run' / 'metrics.csv')
  assert columns['update'].tolist() == [since + 2] * 2 + [since + 4] * 2
  assert len(list((tmp_path / 'run' / 'tensorboard').iterdir())) == 2
  with pytest.raises(ValueError, match="mine need a folder.*workdir='runs/"):
    trainer.train(2, loggers='mine')
  with pytest.raises(ValueError, match="'mlfow', which is unknown. Nearest"):
    trainer.train(2, loggers=['mlfow'], workdir=tmp_path / 'run')
  metrics_file = tmp_path / 'run' / 'metrics.csv'
  before = metrics_file.read_bytes()
  with (
    workdirs.locked(tmp_path / 'run'),
    pytest.raises(files.WorkdirError, match='in use by another run'),
  ):
    trainer.train(2, workdir=tmp_path / 'run')
  assert metrics_file.read_bytes() == before
  (tmp_path / 'run' / 'config.json').touch()
  with pytest.raises(ValueError, match='holds a run of a command'):
    trainer.train(2, workdir=tmp_path / 'run')


def test_a_single_object_serves_one_agent() -> None:
  gymnasium = pytest.importorskip('gymnasium')
  environment = gymnasium.make('CartPole-v1')
  with pytest.raises(ValueError, match='seeds=2 agents need .* pass a '):
    disco_rl.Trainer(environment, RULE, seeds=2)
  own = {n: x for n, x in small.AGENT.items() if n != 'num_environments'}
  trainer = disco_rl.Trainer(environment, RULE, **own)
  with pytest.raises(ValueError, match='Episodes are played in new env'):
    trainer.train(1, evaluate_every=8)
  with pytest.raises(RuntimeError, match='No agent was evaluated'):
    trainer.best_policy()


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    (
      'discount',
      r"of rules, discount: rule=disco_rl.load_rule\('NAME', dis",
    ),
    ('gamma', 'gamma is a setting of rules, discount: '),
    ('lr', "'lr': it is called learning_rate"),
    ('n_envs', "'n_envs': it is called num_environments"),
    ('learnin_rate', 'Nearest: learning_rate'),
    ('loggers', r'of train, not of Trainer: trainer.train\(loggers=\.\.\.\)'),
    ('xyzzy', 'none with a name like it: docs/settings.md lists all'),
    # Of the network of a rule, which is chosen when it is discovered.
    ('rule_prediction_size', "^Trainer has no setting 'rule_prediction_size'"),
  ],
)
def test_settings_of_other_libraries(name: str, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    disco_rl.Trainer('catch', RULE, **{name: 1})


def test_settings_of_rules_are_those_of_the_given_one() -> None:
  with pytest.raises(
    ValueError, match=r"load_rule\('ppo', entropy_cost=\.\.\."
  ):
    disco_rl.Trainer('catch', 'ppo', ent_coef=0.01)
  with pytest.raises(ValueError, match="pi_cost: 'ppo' does not have it"):
    disco_rl.Trainer('catch', 'ppo', pi_cost=1)
  # Names are checked before a rule is loaded, which may need a download.
  with pytest.raises(ValueError, match=r"load_rule\('missing.npz', discount="):
    disco_rl.Trainer('catch', 'missing.npz', gamma=0.9)


def test_methods_of_other_libraries(trainer: disco_rl.Trainer) -> None:
  for name, here in (
    ('learn', 'Trainer.train'),
    ('predict', 'act.observation'),
  ):
    with pytest.raises(AttributeError, match=f'no .{name}.: use {here}'):
      getattr(trainer, name)
  assert not hasattr(trainer, 'xyzzy')
