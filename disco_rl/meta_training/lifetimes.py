"""How long the agents of the population live.

An agent is reborn when it has consumed its budget of environment steps; a new
budget is drawn from a few categories with probability inversely proportional to
their size, so that every category gets the same share of all steps.
"""

from collections.abc import Sequence
import dataclasses
from typing import Annotated

import numpy as np

from disco_rl.runtime import config_checks

# Steps; the paper's.
BUDGETS = (200_000_000, 100_000_000, 50_000_000, 20_000_000)


@dataclasses.dataclass(frozen=True)
class LifetimeConfig(config_checks.Settings):
  """Lengths of life.

  Attributes:
    budgets: environment steps, the categories.
    stagger: whether the first agents start somewhere within their budget, so
      that they are not all reborn together. It is only the count that starts
      there: they are newborn.
  """

  budgets: Annotated[
    tuple[int, ...],
    config_checks.each_positive('numbers of environment steps'),
    config_checks.Requirement('at least one number', bool),
  ] = BUDGETS
  stagger: bool = False


@dataclasses.dataclass(frozen=True)
class Lifetimes:
  """Of n agents.

  Attributes:
    age: [n] int32, environment steps since birth.
    budget: [n] int32, environment steps of the whole life.
    failures: [n] int32, meta-steps in a row in which something of the agent was
      not finite, also over several lives.
  """

  age: np.ndarray
  budget: np.ndarray
  failures: np.ndarray

  @property
  def over(self) -> np.ndarray:
    """[n] bool, the budget is consumed, or the life has failed."""
    return (self.age >= self.budget) | (self.failures > 0)


def draw(
  rng: np.random.Generator, budgets: Sequence[int], num_agents: int
) -> np.ndarray:
  """Budgets [num_agents] int32, with probability proportional to 1 / budget."""
  weights = 1.0 / np.asarray(budgets, np.float64)
  return rng.choice(
    np.asarray(budgets, np.int32), num_agents, p=weights / weights.sum()
  )


def init(
  rng: np.random.Generator, config: LifetimeConfig, num_agents: int
) -> Lifetimes:
  """The first agents."""
  budget = draw(rng, config.budgets, num_agents)
  share = rng.permutation(num_agents) / num_agents if config.stagger else 0.0
  return Lifetimes(
    age=(share * budget).astype(np.int32),
    budget=budget,
    failures=np.zeros(num_agents, np.int32),
  )


def advance(lifetimes: Lifetimes, steps: int, failed: np.ndarray) -> Lifetimes:
  """All agents have consumed more environment steps.

  Args:
    lifetimes: before.
    steps: of each agent.
    failed: [n] bool, whose losses were not finite.

  Returns:
    The lifetimes.
  """
  return dataclasses.replace(
    lifetimes,
    age=lifetimes.age + np.int32(steps),
    failures=np.where(failed, lifetimes.failures + np.int32(1), np.int32(0)),
  )


def reset_expired(
  rng: np.random.Generator, config: LifetimeConfig, lifetimes: Lifetimes
) -> Lifetimes:
  """Those whose life is over begin another."""
  fresh = draw(rng, config.budgets, len(lifetimes.age))
  return dataclasses.replace(
    lifetimes,
    age=np.where(lifetimes.over, np.int32(0), lifetimes.age),
    budget=np.where(lifetimes.over, fresh, lifetimes.budget),
  )
