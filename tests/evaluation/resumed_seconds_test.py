"""Seconds and checkpoints of runs, by a clock that work moves.

Seconds add up over resumptions; checkpoints come by the clock, too, and when an
environment fails.
"""

from collections.abc import Callable
import dataclasses
import pathlib
import time
import types as builtin_types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import evaluate as evaluate_configs
from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.evaluation import base
from disco_rl.evaluation import footprint as evaluation_footprint
from disco_rl.evaluation import runner
from disco_rl.evaluation import training
from disco_rl.meta_training import build
from disco_rl.meta_training import footprint
from disco_rl.meta_training import inner_loop
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import checkpointing
from disco_rl.runtime import limits
from disco_rl.runtime import metrics
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights
from launch import to_records

# Seconds that agents take to be made, that an update or a meta-step takes, and
# between two sessions.
INIT, STEP, BETWEEN = 3.0, 10.0, 1000.0
AGENTS = 2
PARAMS = {'module': {'w': jnp.ones((2,))}}

# A session: trains up to so many steps, in a folder.
Session = Callable[[int, pathlib.Path], dict[str, Any]]


class Killed(BaseException):
  """Ends a session without warning."""


@dataclasses.dataclass
class Clock:
  """In the place of `time.perf_counter`.

  Attributes:
    now: seconds.
    steps_left: before the session is killed.
  """

  now: float = 0.0
  steps_left: int = 1000

  def __call__(self) -> float:
    return self.now

  def step(self, count: int = 1) -> None:
    self.now += count * STEP
    self.steps_left -= count
    if self.steps_left < 0:
      raise Killed


class WithoutReplay:
  """What has no replay beside its state."""

  def save_environments(self) -> None:
    pass

  def begin_episodes(self) -> None:
    pass

  def open_replays(self, directory: pathlib.Path) -> None:
    pass

  def save_replays(self, keep: int) -> None:
    pass

  def restore_replays(self, state: Any) -> None:
    pass


class Group(WithoutReplay):
  """A group whose meta-steps do nothing but take time."""

  compile_seconds = 0.0
  config = builtin_types.SimpleNamespace(
    names=AGENTS * ('catch/4x3',),
    num_agents=AGENTS,
    num_members=AGENTS,
    counts=np.ones(AGENTS, bool),
  )
  steps = inner_loop.Steps(of_member=1, in_all=1)

  def __init__(self, clock: Clock):
    self._clock = clock

  def init(self, keys: types.Array, rule_params: types.Params) -> Any:
    del keys, rule_params
    self._clock.now += INIT
    return {'members': jnp.zeros(AGENTS)}

  def resume(self, members: Any, *_: Any) -> Any:
    return members

  def to_checkpoint(self, members: Any) -> Any:
    return members

  def calls(self, rule_params: types.Params) -> list[Any]:
    del rule_params
    return []

  def step(self, rule_params: types.Params, members: Any) -> Any:
    del rule_params
    self._clock.step()
    updates = jax.tree.map(lambda x: x[None], PARAMS)
    logs = {'failed': jnp.zeros(AGENTS), 'return': jnp.ones(AGENTS)}
    return updates, members, logs


class Driver(WithoutReplay):
  """A driver whose updates do nothing but take time."""

  compile_seconds = 0.0
  is_compiled = True
  fails_at = -1.0

  def __init__(self, clock: Clock):
    self._clock = clock

  def init(self, keys: types.Array) -> base.TrainState:
    del keys
    self._clock.now += INIT
    nothing: Any = jnp.zeros(AGENTS)
    statistics = episodes.EpisodeStatistics(
      running=jnp.zeros((AGENTS, 1)),
      recent=jnp.zeros((AGENTS, episodes.NUM_RECENT)),
      finished=jnp.ones((AGENTS,), jnp.int32),
    )
    agents = agent_lib.AgentState(nothing, nothing, statistics, nothing)
    return base.TrainState(agents=agents, actors=None)

  def resume(self, train_state: base.TrainState, _: None) -> base.TrainState:
    return train_state

  @property
  def agent(self) -> Any:
    return builtin_types.SimpleNamespace(
      config=evaluation_config(1).agent, steps_per_update=1
    )

  def compile(
    self, rule_params: types.Params, train_state: base.TrainState
  ) -> None:
    pass

  def attempt(
    self,
    rule_params: types.Params,
    train_state: base.TrainState,
    num_updates: int,
    should_stop: Callable[[], bool],
  ) -> base.Advanced:
    del rule_params, should_stop
    self._clock.step(num_updates)
    logs = {'loss': jnp.zeros(AGENTS)}
    if self._clock.now == self.fails_at:
      return base.Advanced(train_state, 1, logs, OSError('no such thing'))
    return base.Advanced(train_state, num_updates, logs)


def discovery(clock: Clock, patch: pytest.MonkeyPatch) -> Session:
  patch.setattr(build, 'make_rule', lambda _: (disco.Disco(), PARAMS))
  patch.setattr(build, 'make_groups', lambda *_: [Group(clock)])
  patch.setattr(footprint, 'check', lambda *_: limits.OffDevice(0, 0))
  patch.setattr(weights, 'save', lambda path, *_: pathlib.Path(path).touch())

  def session(meta_steps: int, workdir: pathlib.Path) -> dict[str, Any]:
    settings = {
      **quickstart.get_config().to_dict(),
      'agents': AGENTS,
      'meta_steps': meta_steps,
      'meta_decay_steps': 0,
      'checkpoint_every': 2,
      'held_out_environments': '',
    }
    config = to_records.meta_training(settings)
    return meta_trainer.MetaTrainer(config).run(workdir, {})

  return session


def evaluation_config(
  updates: int, rule: str = 'actor_critic', **changes: Any
) -> runner.EvaluationConfig:
  settings = {
    **evaluate_configs.get_config('catch').to_dict(),
    'environment': 'catch/4x3',
    'rule': rule,
    'seeds': AGENTS,
    'updates': updates,
    'log_every': 1,
    'checkpoint_every': 2,
    **changes,
  }
  return to_records.evaluation(settings)


def evaluation(
  clock: Clock, patch: pytest.MonkeyPatch, **changes: Any
) -> Session:
  patch.setattr(training, 'make', lambda *_: Driver(clock))
  patch.setattr(
    evaluation_footprint, 'check', lambda *_: limits.OffDevice(0, 0)
  )

  def session(updates: int, workdir: pathlib.Path) -> dict[str, Any]:
    config = evaluation_config(updates, **changes)
    return runner.Evaluation(config).run(workdir, {})

  return session


@pytest.mark.parametrize('kind', [discovery, evaluation])
def test_seconds_add_up_over_resumptions(
  kind: Callable[[Clock, pytest.MonkeyPatch], Session],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """What was lost, or passed while nothing ran, does not count."""
  clock = Clock()
  monkeypatch.setattr(time, 'perf_counter', clock)
  session = kind(clock, monkeypatch)

  clock.now += BETWEEN
  # The two first steps.
  expected = INIT + 2 * STEP
  assert session(2, tmp_path)['seconds'] == expected

  clock.now += BETWEEN
  clock.steps_left = 2
  with pytest.raises(Killed):
    session(5, tmp_path)
  # Two more, up to the last checkpoint.
  expected += INIT + 2 * STEP

  clock.now += BETWEEN
  clock.steps_left = 1000
  summary = session(5, tmp_path)
  expected += INIT + STEP
  assert summary['seconds'] == pytest.approx(expected)
  saved = metrics.read_json(tmp_path / 'summary.json')
  assert saved['seconds'] == pytest.approx(expected)

  # Nothing is left to do.
  clock.now += BETWEEN
  assert session(5, tmp_path)['seconds'] == pytest.approx(expected + INIT)


def checkpoints(workdir: pathlib.Path) -> list[int]:
  return sorted(int(x.name) for x in (workdir / 'checkpoints').iterdir())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
  clock = Clock()
  monkeypatch.setattr(time, 'perf_counter', clock)
  return clock


def test_a_killed_run_loses_no_more_than_the_seconds_between_checkpoints(
  tmp_path: pathlib.Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
  session = evaluation(
    clock, monkeypatch, checkpoint_every=1000, checkpoint_seconds=3 * STEP
  )
  clock.steps_left = 8
  with pytest.raises(Killed):
    session(1000, tmp_path)
  assert checkpoints(tmp_path) == [3, 6]
  clock.steps_left = 1
  with pytest.raises(Killed):
    session(1000, tmp_path)
  assert metrics.read(tmp_path / 'metrics.csv')['update'][-1] == 7


def test_checkpoints_by_time_take_little_of_it(
  tmp_path: pathlib.Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Saving takes as long as an update: one in fifty is saved."""
  save = checkpointing.Checkpointer.save

  def slow_save(*args: Any) -> None:
    save(*args)
    clock.now += STEP

  monkeypatch.setattr(checkpointing.Checkpointer, 'save', slow_save)
  saved: list[int] = []
  monkeypatch.setattr(
    Driver, 'save_replays', lambda *_: saved.append(1000 - clock.steps_left)
  )
  evaluation(
    clock, monkeypatch, checkpoint_every=1000, checkpoint_seconds=3 * STEP
  )(200, tmp_path)
  assert saved == [3, 53, 103, 153, 200]


def test_what_was_complete_is_saved_when_an_environment_fails(
  tmp_path: pathlib.Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
  session = evaluation(clock, monkeypatch, checkpoint_every=1000, log_every=5)
  monkeypatch.setattr(Driver, 'fails_at', INIT + 10 * STEP)
  with pytest.raises(OSError, match='no such thing'):
    session(1000, tmp_path)
  # Of the second five updates one was made.
  assert checkpoints(tmp_path) == [6]
  assert metrics.read(tmp_path / 'metrics.csv')['update'].tolist() == [
    5,
    5,
    6,
    6,
  ]
