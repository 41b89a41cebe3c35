"""The loop of training: its stages, and what the progress bar says."""

from collections.abc import Callable
import re
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.training import base
from disco_rl.training import loop


def train_state(acts_on: Any = None) -> agent_lib.AgentState:
  """A state of one agent; on the device if it acts on these environments."""
  nothing: Any = None
  statistics = episodes.EpisodeStatistics(
    running=jnp.zeros((1, 1)),
    running_error=jnp.zeros((1, 1)),
    recent=jnp.ones((1, episodes.NUM_RECENT)),
    recent_error=jnp.zeros((1, episodes.NUM_RECENT)),
    finished=jnp.ones((1,), jnp.int32),
    billions=jnp.zeros((1,), jnp.int32),
  )
  acting = actor.Acting(nothing, statistics, None)
  if acts_on is not None:
    acting = actor.DeviceActing(**vars(acting), actor=acts_on)
  return agent_lib.AgentState(nothing, acting, nothing)


class Agents:
  """Notes what it is asked for; fails after so many updates."""

  is_compiled = False

  agent = types.SimpleNamespace(
    config=types.SimpleNamespace(updates_per_rollout=2), steps_per_update=24
  )

  def __init__(self, fails_after: int = 1000, fill_rollouts: int = 0):
    self.left, self.fill = fails_after, fill_rollouts
    self.asked: list[Any] = []

  def compile(self, *_: Any) -> None:
    self.asked.append('compile')

  def fill_rollouts(self, _: agent_lib.AgentState) -> int:
    return self.fill

  def attempt(
    self,
    rule_params: Any,
    before: agent_lib.AgentState,
    num_updates: int,
    should_stop: Callable[[], bool],
  ) -> base.Outcome:
    del rule_params, should_stop
    self.asked.append(num_updates)
    done = min(num_updates, self.left)
    self.left -= done
    self.fill = 0 if done else self.fill // 2
    logs = {'loss': jnp.ones(1)} if done else {}
    failure = None if done == num_updates else OSError('out of order')
    return base.Outcome(before, done, logs, failure)


def run(
  agents: Any,
  updates: loop.UpdateRange,
  should_stop: Callable[[], bool] = lambda: False,
) -> list[loop.Stage]:
  stages: list[loop.Stage] = []
  try:
    loop.train(
      agents, {}, train_state(), updates, stages.append, should_stop, 'x'
    )
  except OSError as error:
    assert str(error) == 'out of order'
    assert stages[-1].is_last
  return stages


def test_stages_end_at_multiples() -> None:
  agents = Agents()
  stages = run(agents, loop.UpdateRange(3, 14, (5, 4), 100))
  assert agents.asked == ['compile', 1, 1, 3, 2, 2, 2]
  assert [stage.update for stage in stages] == [4, 5, 8, 10, 12, 14]
  assert [stage.is_last for stage in stages] == [False] * 5 + [True]
  assert stages[-1].environment_steps == 100 + 11 * 24
  assert stages[0].rows == [
    {
      'update': 4,
      # Those before may have been more for each update.
      'environment_steps': 100 + 24,
      'episodes': 1,
      'return': 1.0,
      'loss': 1.0,
    }
  ]


def test_steps_that_fill_replay_count_whenever_they_are_made() -> None:
  """Three rollouts of two updates each, in addition to that of an update."""
  of_filling = 3 * 2 * 24
  stages = run(Agents(fill_rollouts=3), loop.UpdateRange(10, 20, (5,), 100))
  assert [stage.environment_steps for stage in stages] == [
    100 + of_filling + 5 * 24,
    100 + of_filling + 10 * 24,
  ]
  # Two of them were complete before the failure.
  agents = Agents(fails_after=0, fill_rollouts=3)
  (stage,) = run(agents, loop.UpdateRange(10, 20, (5,), 100))
  assert stage.environment_steps == 100 + 2 * 2 * 24
  agents.left = 1000
  stages = run(agents, loop.UpdateRange(10, 20, (5,), stage.environment_steps))
  assert stages[-1].environment_steps == 100 + of_filling + 10 * 24


def test_nothing_is_done_where_nothing_is_left() -> None:
  agents = Agents()
  assert not run(agents, loop.UpdateRange(7, 7, (5,)))
  assert not agents.asked


@pytest.mark.parametrize(
  ('fails_after', 'update', 'rows'), [(7, 7, 1), (5, 5, 0)]
)
def test_what_is_complete_is_handed_over_before_an_error(
  fails_after: int, update: int, rows: int
) -> None:
  stages = run(Agents(fails_after), loop.UpdateRange(0, 20, (5,)))
  assert [stage.update for stage in stages] == [5, update]
  assert len(stages[-1].rows) == rows


def test_a_request_to_stop_ends_with_the_stage() -> None:
  agents = Agents()
  stages = run(
    agents, loop.UpdateRange(0, 20, (5,)), lambda: len(agents.asked) > 2
  )
  assert [(stage.update, stage.is_last) for stage in stages] == [
    (5, False),
    (10, True),
  ]


def test_the_bar_says_when_programs_are_compiled(
  capsys: pytest.CaptureFixture[str],
) -> None:
  agents = Agents()
  run(agents, loop.UpdateRange(0, 5, (5,)))
  first, second, *_ = capsys.readouterr().err.splitlines()
  assert 'compiling' in first
  assert 'compiling' not in second
  agents.is_compiled = True
  run(agents, loop.UpdateRange(0, 5, (5,)))
  assert 'compiling' not in capsys.readouterr().err


@pytest.mark.parametrize(
  ('largest', 'cause'),
  [
    (1e20, 'an observation of 1e[+]20'),
    (1e17, 'a learning rate'),
    (np.inf, 'an observation of inf'),
  ],
)
def test_huge_observations_are_named_as_the_cause(
  largest: float, cause: str
) -> None:
  observation = {'x': jnp.array([[0.0, -largest]]), 'n': jnp.ones((1, 1), int)}
  state = train_state(actor.ActorState((), observation, ()))
  assert re.match(cause, loop.likely_causes(state))
