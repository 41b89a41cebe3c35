"""Plays episodes with agents while they are trained, and keeps their best."""

from collections.abc import Sequence
import dataclasses

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.training import player as player_lib


@types.record
class Best:
  """The best policies of S agents, by the mean returns of their evaluations.

  Attributes:
    params: The parameters theta, with a leading axis S, on the host.
    mean_return: The mean returns of these policies, [S]; -inf before the first
      evaluation.
    environment_steps: The environment steps after which they were reached, [S].
  """

  params: types.Params
  mean_return: np.ndarray
  environment_steps: np.ndarray


def no_best(params: types.Params) -> Best:
  """Returns the record before the first evaluation.

  Args:
    params: Parameters or shapes, with a leading axis S.
  """
  number = len(jax.tree.leaves(params)[0])
  return Best(
    jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), params),
    np.full(number, -np.inf),
    np.zeros(number, np.int64),
  )


class Evaluator:
  """Evaluates S agents whenever they have made another number of steps.

  Each of them plays the same episodes every time, in new environments: those
  that `Trainer.evaluate` plays with the agent's seed.

  Attributes:
    best: The best policies so far.
  """

  def __init__(
    self,
    player: player_lib.Player,
    seeds: Sequence[int],
    every: int,
    episodes: int,
    best: Best,
  ):
    """Plays nothing yet.

    Args:
      player: Acts and plays with the network of the agents.
      seeds: The seeds of the agents, [S].
      every: The number of environment steps of an agent between evaluations.
      episodes: The number of episodes that each agent plays.
      best: The best policies so far.

    Raises:
      ValueError: There can be no new environments.
    """
    player.check_new_environments()
    self._player, self._seeds = player, seeds
    self._every, self._episodes = every, episodes
    self.best = best

  def next_update(self, agent: agent_lib.Agent, update: int) -> int:
    """Returns the update after which the next evaluation is due.

    It is the first one with at least the steps, counted from the agent's first
    one: evaluations do not depend on when a run was interrupted.
    """
    done = agent.environment_steps(update)
    target = (done // self._every + 1) * self._every
    fill = 0 if update else agent.config.fill_rollouts(0)
    return update + agent.updates_for(target - done, fill)

  def is_due(self, agent: agent_lib.Agent, update: int) -> bool:
    """Returns whether agents are evaluated after an update."""
    before = update - agent.config.updates_per_rollout
    done = agent.environment_steps(update) // self._every
    return done > agent.environment_steps(before) // self._every

  def evaluate(
    self, params: types.Params, environment_steps: int
  ) -> np.ndarray:
    """Evaluates the agents; replaces their best policies by better ones.

    Args:
      params: The parameters, with a leading axis S.
      environment_steps: The environment steps of each agent so far.

    Returns:
      The mean returns, [S].
    """
    means = np.array(
      [
        self._player.play(
          jax.tree.map(lambda x, i=i: x[i : i + 1], params),
          self._episodes,
          greedy=False,
          seed=seed,
        )[0].mean
        for i, seed in enumerate(self._seeds)
      ]
    )
    is_better = means > self.best.mean_return

    def newest(old: np.ndarray, new: np.ndarray) -> np.ndarray:
      axes = tuple(range(1, old.ndim))
      return np.where(np.expand_dims(is_better, axes), new, old)

    if is_better.any():
      self.best = dataclasses.replace(
        self.best,
        params=jax.tree.map(newest, self.best.params, jax.device_get(params)),
        mean_return=newest(self.best.mean_return, means),
        environment_steps=newest(
          self.best.environment_steps, np.full(len(means), environment_steps)
        ),
      )
    return means
