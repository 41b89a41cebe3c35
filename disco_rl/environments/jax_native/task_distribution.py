"""Distributions of tasks: each agent draws one, and keeps it for its lifetime.

With a new task for every agent that is reset, discovery needs a rule that works
on tasks that it has not seen.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family


@types.record
class TaskState:
  """The task that an agent drew, and the episodes in its environments.

  Attributes:
    task: The task, without an axis E, because the agent's environments share
      it.
    episode: The state of the task, with an axis E in `reset_batch`.
  """

  task: base.JaxEnvironment
  episode: types.PyTree


class TaskDistribution(base.JaxEnvironment):
  """Tasks with equal shapes, which can share one program.

  The task is part of the state: `reset` and `reset_batch` draw it, and steps
  keep it, even at the beginning of the next episode. So it lasts as long as the
  state of an agent's environments, is saved with it, and is replaced when the
  agent is reset.
  """

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of every task."""
    task: base.JaxEnvironment = jax.eval_shape(
      lambda: self.draw(jax.random.key(0))
    )
    return task.spec

  @abc.abstractmethod
  def draw(self, key: types.Array) -> base.JaxEnvironment:
    """Draws a task; all have one tree structure, and equal shapes."""

  def reset(self, key: types.Array) -> tuple[TaskState, types.PyTree]:
    """Begins an episode in a new task."""
    task_key, episode_key = jax.random.split(key)
    del key
    task = self.draw(task_key)
    episode, observation = task.reset(episode_key)
    return TaskState(task, episode), observation

  def step(
    self, state: TaskState, action: types.Array, key: types.Array
  ) -> tuple[TaskState, types.TimeStep]:
    """Implements `JaxEnvironment.step`."""
    episode, timestep = state.task.step(state.episode, action, key)
    return dataclasses.replace(state, episode=episode), timestep

  def step_autoreset(
    self, state: TaskState, action: types.Array, key: types.Array
  ) -> tuple[TaskState, types.TimeStep]:
    """Takes one action; the next episode begins in the same task."""
    episode, timestep = state.task.step_autoreset(state.episode, action, key)
    return dataclasses.replace(state, episode=episode), timestep

  def render(self, state: TaskState) -> np.ndarray:
    """Draws the state of the current task."""
    return state.task.render(state.episode)

  def reset_batch(
    self, key: types.Array, num_environments: int
  ) -> tuple[TaskState, types.PyTree]:
    """Begins episodes in one new task for all environments."""
    task_key, episodes_key = jax.random.split(key)
    del key
    task = self.draw(task_key)
    episodes, observation = task.reset_batch(episodes_key, num_environments)
    return TaskState(task, episodes), observation

  def step_batch(
    self, state: TaskState, action: types.Array, keys: types.Array
  ) -> tuple[TaskState, types.TimeStep]:
    """Implements `JaxEnvironment.step_batch`."""
    episodes, timestep = state.task.step_batch(state.episode, action, keys)
    return dataclasses.replace(state, episode=episodes), timestep


# Seeds of the tasks that are the same in all runs. Runs use smaller ones, so no
# agent draws a numbered task by chance.
_SEED_OF_NUMBERS = 2**31 - 1
_SEED_OF_SUBSETS = 2**31 - 2


def _fixed(
  distribution: TaskDistribution, seed: int, number: types.Array | int
) -> base.JaxEnvironment:
  """Draws a task that a seed and a number determine."""
  # In JAX 0.10 the structures of dataclasses without leaves are equal whatever
  # their classes, so jit alone sometimes returned a task of another one.
  task: base.JaxEnvironment = _draw(
    type(distribution), distribution, seed, number
  )
  return task


@functools.partial(jax.jit, static_argnums=0)
def _draw(
  kind: type[TaskDistribution],
  distribution: TaskDistribution,
  seed: int,
  number: types.Array | int,
) -> base.JaxEnvironment:
  del kind  # It only distinguishes the programs.
  return distribution.draw(jax.random.fold_in(jax.random.key(seed), number))


def numbered(
  distribution: TaskDistribution, number: int
) -> base.JaxEnvironment:
  """Draws a task by number, the same for all agents and runs."""
  return _fixed(distribution, _SEED_OF_NUMBERS, number)


@types.record
class Subset(TaskDistribution):
  """A fixed number of tasks of a distribution, each equally probable.

  They are the same for all agents and runs, and the tasks of a smaller subset
  are among those of a larger one. None of them is one of `numbered`.

  Attributes:
    distribution: The distribution of the tasks.
    size: [] int32, the number of tasks.
  """

  distribution: TaskDistribution
  size: types.Array

  def draw(self, key: types.Array) -> base.JaxEnvironment:
    """Implements `TaskDistribution.draw`."""
    number = jax.random.randint(key, (), 0, self.size)
    return _fixed(self.distribution, _SEED_OF_SUBSETS, number)


def find(
  make: Callable[[], TaskDistribution], variant: str | None
) -> family.Builder | None:
  """Finds a distribution of tasks, a subset of it, or a task by its number."""
  if variant is None:
    return lambda *_: make()
  found = re.fullmatch('(of_)?(0|[1-9][0-9]{0,8})', variant)
  if not found or variant == 'of_0':
    return None
  number = int(found[2])
  if found[1]:
    return lambda *_: Subset(make(), jnp.int32(number))
  return lambda *_: numbered(make(), number)
