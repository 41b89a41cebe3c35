"""Tiny discoveries, and groups of agents in environments made for a test."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import small_runs
from configs import quickstart
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population


def config_of(**changes: Any) -> config_lib.MetaTrainingConfig:
  """A discovery by configs/quickstart.py, tiny, with changed settings."""
  settings = {**quickstart.get_config().to_dict(), **small_runs.SETTINGS}
  return meta_trainer.config_of({**settings, **changes})


def group_config(
  config: config_lib.MetaTrainingConfig,
  rule: Any,
  spec: types.EnvironmentSpec,
  **fields: Any,
) -> population.GroupConfig:
  """All agents of a discovery as one group, in environments of this spec."""
  return population.GroupConfig(
    names=config.agents * ('own',),
    inner_loop=build.make_inner_loop(config, rule, spec),
    optimizer=meta_update.meta_optimizers(config)[0],
    chunk_size=config.chunk_size,
    **fields,
  )


class Counting(base.HostEnvironment):
  """Observes its agent's number, its resets and the steps since; never ends.

  The reward of an action is the number plus the action, 0 or 1.
  """

  num_environments = 2

  def __init__(self, number: int, width: int = 3):
    self.spec = counting_spec(width)
    self._number, self._resets, self._steps = number, 0, 0

  def reset(self) -> types.PyTree:
    self._resets += 1
    self._steps = 0
    return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    self._steps += 1
    nothing: Any = np.zeros(self.num_environments, bool)
    return types.TimeStep(
      observation=self._observe(),
      reward=np.float32(self._number + action),
      is_terminal=nothing,
      is_last=nothing,
      mask=~nothing,
    )

  def save_state(self) -> types.PyTree:
    return {'counts': np.array([self._number, self._resets, self._steps])}

  def restore_state(self, state: types.PyTree) -> None:
    self._number, self._resets, self._steps = state['counts'].tolist()

  def close(self) -> None:
    pass

  def _observe(self) -> np.ndarray:
    shape = (self.num_environments, *self.spec.observation.shape)
    observation = np.zeros(shape, np.float32)
    observation[:, :3] = self._number, self._resets, self._steps
    return observation


def counting_spec(width: int = 3) -> types.EnvironmentSpec:
  """Zeros fill the observations of `Counting` up to this width."""
  return types.EnvironmentSpec(jax.ShapeDtypeStruct((width,), jnp.float32), 2)


@dataclasses.dataclass(frozen=True)
class MeanReward(meta_gradient.MetaGradient):
  """A cheap estimator: the gradient is the mean of all rewards."""

  def outer_gradient(
    self, rule_params: types.Params, member: Any, validation: types.Rollout
  ) -> Any:
    gradient = jax.tree.map(
      lambda x: jnp.full_like(x, jnp.mean(validation.reward)), rule_params
    )
    return ((), gradient), member, {}

  def backward(
    self, rule_params: types.Params, cotangents: Any, segment: Any
  ) -> Any:
    del rule_params
    of_state, gradient = cotangents
    reward = jnp.mean(segment.batches.reward)
    return (of_state, jax.tree.map(lambda x: x + reward, gradient)), {}
