"""Lifetimes of the agents of the population.

An agent is reset after its budget of environment steps. A new budget is drawn
from a few categories with probability inversely proportional to their size, so
that every category gets the same fraction of all steps.
"""

from collections.abc import Sequence
import dataclasses
from typing import Annotated

import numpy as np

from disco_rl import config as config_lib

# In environment steps, as in the paper.
BUDGETS = (200_000_000, 100_000_000, 50_000_000, 20_000_000)


@dataclasses.dataclass(frozen=True)
class LifetimeConfig(config_lib.Settings):
  """Lengths of the agents' lifetimes.

  Attributes:
    budgets: lengths of lifetimes to draw from, in environment steps.
    stagger: whether the first agents have random initial ages within their
      budgets, so that not all agents are reset at the same time.
    budget_steps_per_action: environment steps that an action uses up of a
      budget, in all environments, so that equal budgets are equally many
      updates; 0: as many as the environment counts, which is four in Atari and
      DMLab and one elsewhere.
  """

  budgets: Annotated[
    tuple[int, ...],
    config_lib.each_positive('numbers of environment steps'),
    config_lib.Requirement('at least one number', bool),
    # Ages have 32 bits, and exceed budgets by the steps of a meta-step.
    config_lib.Requirement(
      'at most 10**9 each', lambda xs: all(x <= 10**9 for x in xs)
    ),
  ] = BUDGETS
  stagger: bool = False
  budget_steps_per_action: config_lib.CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class Lifetimes:
  """The lifetimes of n agents.

  Attributes:
    age: The environment steps since the last reset, as `aging` counts them, [n]
      int32.
    budget: The environment steps from one reset to the next, [n] int32.
    failures: The number of consecutive meta-steps in which a loss or
      meta-gradient of the agent was not finite, even across resets, [n] int32.
  """

  age: np.ndarray
  budget: np.ndarray
  failures: np.ndarray

  @property
  def expired(self) -> np.ndarray:
    """Whether the budget is used up, or the agent has failed, [n] bool."""
    return (self.age >= self.budget) | (self.failures > 0)


def draw(
  rng: np.random.Generator, budgets: Sequence[int], num_members: int
) -> np.ndarray:
  """Draws budgets [num_members] int32, each with a weight of 1 / budget."""
  weights = 1.0 / np.asarray(budgets, np.float64)
  return rng.choice(
    np.asarray(budgets, np.int32), num_members, p=weights / weights.sum()
  )


def init(
  rng: np.random.Generator, config: LifetimeConfig, num_members: int
) -> Lifetimes:
  """Makes the lifetimes of the first agents."""
  budget = draw(rng, config.budgets, num_members)
  start = rng.permutation(num_members) / num_members if config.stagger else 0.0
  return Lifetimes(
    age=(start * budget).astype(np.int32),
    budget=budget,
    failures=np.zeros(num_members, np.int32),
  )


def aging(
  config: LifetimeConfig, steps: np.ndarray | int, action_repeat: int
) -> np.ndarray | int:
  """Returns by how much environment steps age an agent.

  Args:
    config: The settings of lifetimes.
    steps: The environment steps, multiples of action_repeat.
    action_repeat: The environment steps that the environment counts per action.
  """
  per_action = config.budget_steps_per_action or action_repeat
  return steps // action_repeat * per_action


def advance(
  lifetimes: Lifetimes, steps: np.ndarray | int, failed: np.ndarray
) -> Lifetimes:
  """Counts the environment steps and failures of a meta-step.

  Args:
    lifetimes: The lifetimes before the meta-step.
    steps: The environment steps of all agents or of each, by `aging`.
    failed: [n] bool, whether a loss or the meta-gradient was not finite.
  """
  return dataclasses.replace(
    lifetimes,
    age=lifetimes.age + np.asarray(steps, np.int32),
    failures=np.where(failed, lifetimes.failures + np.int32(1), np.int32(0)),
  )


def reset_expired(
  rng: np.random.Generator, config: LifetimeConfig, lifetimes: Lifetimes
) -> Lifetimes:
  """Sets the age of expired agents to zero, and draws new budgets."""
  fresh = draw(rng, config.budgets, len(lifetimes.age))
  return dataclasses.replace(
    lifetimes,
    age=np.where(lifetimes.expired, np.int32(0), lifetimes.age),
    budget=np.where(lifetimes.expired, fresh, lifetimes.budget),
  )
