"""Trains with a fixed rule, in stages with a progress bar."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.environments.host import data_checks
from disco_rl.runtime import progress
from disco_rl.runtime import reports
from disco_rl.training import base
from disco_rl.training import evaluator as evaluator_lib

# Metric -> value, for one agent after one stage.
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Stage:
  """The result of a stage.

  Attributes:
    update: The number of updates so far.
    environment_steps: The environment steps of each agent so far.
    train_state: The state afterwards; valid until the next stage begins, which
      donates it.
    rows: For each agent: update, environment_steps, episodes (finished so far),
      return (mean of the last 100 episodes), evaluation_return if there are
      evaluations (NaN in other stages), and the rule's own metrics, means over
      the stage; empty if no update was made.
    is_last: Whether training ends with this stage, for any reason.
  """

  update: int
  environment_steps: int
  train_state: agent_lib.AgentState
  rows: list[Row]
  is_last: bool


@dataclasses.dataclass(frozen=True)
class UpdateRange:
  """The range of updates of a training, and the ends of its stages.

  Attributes:
    first: The number of updates made before.
    last: The number of updates afterwards.
    every: Stages end at multiples of each of these.
    environment_steps: The environment steps of each agent before.
  """

  first: int
  last: int
  every: Sequence[int]
  environment_steps: int = 0


def train(
  training: base.Training,
  rule_params: types.Params,
  train_state: agent_lib.AgentState,
  updates: UpdateRange,
  on_stage: Callable[[Stage], None],
  should_stop: Callable[[], bool],
  description: str,
  is_shown: bool = True,
  evaluator: evaluator_lib.Evaluator | None = None,
) -> None:
  """Trains, until the last update, a request to stop, or a failure.

  Args:
    training: The training of S agents.
    rule_params: The rule's parameters.
    train_state: The state before; donated.
    updates: The range of updates.
    on_stage: Called after every stage, including one that a failing environment
      cut short.
    should_stop: Called after every stage, and within stages by
      `base.Training.attempt`; True ends training.
    description: The start of the progress bar's line.
    is_shown: Whether there is a bar, which counts environment steps.
    evaluator: Plays episodes with the agents, after stages that end there.

  Raises:
    BaseException: An environment failed; raised after `on_stage`.
  """
  update, is_last = updates.first, updates.first == updates.last
  steps, fill = updates.environment_steps, training.fill_rollouts(train_state)

  def steps_of(updates: int, fill_rollouts: int) -> int:
    """Returns the environment steps of updates, and of filling replay."""
    per_update = training.agent.steps_per_update
    per_rollout = per_update * training.agent.config.updates_per_rollout
    return updates * per_update + fill_rollouts * per_rollout

  is_compiled = is_last or training.is_compiled
  with progress.Progress(
    steps + steps_of(updates.last - updates.first, fill),
    steps,
    unit='step',
    description=description,
    is_shown=is_shown,
    status='' if is_compiled else 'compiling',
  ) as bar:
    if not is_compiled:
      training.compile(rule_params, train_state)
      bar.begin()
    while not is_last:
      target = min(
        updates.last,
        *((update // n + 1) * n for n in updates.every),
      )
      if evaluator:
        target = min(target, evaluator.next_update(training.agent, update))
      done = training.attempt(
        rule_params, train_state, target - update, should_stop
      )
      train_state = done.train_state
      update += done.num_updates
      before, fill = fill, training.fill_rollouts(train_state)
      new_steps = steps_of(done.num_updates, before - fill)
      steps += new_steps
      rows = _rows(update, steps, done) if done.num_updates else []
      if evaluator and rows:
        _evaluate(evaluator, training.agent, update, steps, train_state, rows)
      is_last = (
        should_stop() or update == updates.last or done.failure is not None
      )
      on_stage(Stage(update, steps, train_state, rows, is_last))
      if done.failure is not None:
        raise done.failure
      mean_return = float(np.mean([row['return'] for row in rows]))
      bar.advance(new_steps, **{'return': mean_return})


def returns(train_state: agent_lib.AgentState) -> list[float]:
  """Returns the mean return of the last episodes of each agent."""
  return episodes.mean_return_on_host(train_state.acting.episodes).tolist()


def _evaluate(
  evaluator: evaluator_lib.Evaluator,
  agent: agent_lib.Agent,
  update: int,
  environment_steps: int,
  train_state: agent_lib.AgentState,
  rows: list[Row],
) -> None:
  """Adds the results of an evaluation to the rows; NaN if none is due."""
  means = np.full(len(rows), np.nan)
  if evaluator.is_due(agent, update):
    params = train_state.learner.params
    means = evaluator.evaluate(params, environment_steps)
  for row, mean in zip(rows, means.tolist()):
    row['evaluation_return'] = mean


def report_rounding(unit: str, asked: int, made: int) -> None:
  """Says that a budget was rounded up, if it was."""
  if made != asked:
    reports.note(
      f'{asked:,} {unit} are rounded up to {made:,}, to whole rollouts.'
    )


def likely_causes(train_state: agent_lib.AgentState) -> str:
  """Names what may have made metrics infinite or NaN, for an error message."""
  if isinstance(train_state.acting, actor.DeviceActing):
    observation = train_state.acting.actor.observation
    leaves = jax.tree.leaves(jax.device_get(observation))
    largest = max(float(np.max(np.abs(x), initial=0)) for x in leaves)
    if not largest <= data_checks.LARGEST_OBSERVATION:
      return (
        f'an observation of {largest:g}: scale or clip observations in the '
        'environment, because float32 cannot hold their squares'
      )
  return (
    'a learning rate that is too high, observations or rewards that are huge '
    'or not finite, or an action_mask without a legal action'
  )


def _rows(update: int, environment_steps: int, done: base.Outcome) -> list[Row]:
  finished = episodes.finished_on_host(done.train_state.acting.episodes)
  logs = jax.device_get(done.logs)
  return [
    {
      'update': update,
      'environment_steps': environment_steps,
      'episodes': int(finished[i]),
      'return': mean,
      **{name: float(values[i]) for name, values in logs.items()},
    }
    for i, mean in enumerate(returns(done.train_state))
  ]
