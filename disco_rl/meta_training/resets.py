"""How members of a population come into the world."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import sharding


class Resets:
  """Programs that make members, whatever their environments."""

  def __init__(
    self, config: population.GroupConfig, initial: compilation.Program
  ):
    """Compiles nothing yet.

    Args:
      config: what the members share.
      initial: makes members without what `complete` adds, of keys [n].
    """
    self._config = config
    self._initial = initial
    self._complete = config.program(
      functools.partial(complete, config),
      (sharding.REPLICATED, sharding.SPLIT),
      runs_often=False,
    )
    self._replace = config.program(
      replace_where, 3 * (sharding.SPLIT,), donate_argnums=2, runs_often=False
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    programs = (self._initial, self._complete, self._replace)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params, *environments: Any
  ) -> inner_loop_lib.Member:
    """See `population.Group.init`."""
    initial = self._initial(self._config.split(keys), *environments)
    return self._complete(rule_params, initial)

  def reset_expired(
    self,
    keys: types.Array,
    members: inner_loop_lib.Member,
    over: np.ndarray,
    *environments: Any,
  ) -> inner_loop_lib.Member:
    """See `population.Group.reset_expired`."""
    split = self._config.split
    initial = self._initial(split(keys), *environments)
    return self._replace(split(jnp.asarray(over)), initial, members)


def initial_member(
  inner_loop: inner_loop_lib.InnerLoop, key: types.Array
) -> inner_loop_lib.Member:
  """A member without what `complete` adds, and without environments."""
  agent_key, value_key = jax.random.split(key)
  missing: Any = None
  agent = inner_loop.agent.init(agent_key)
  return inner_loop_lib.Member(
    agent=dataclasses.replace(agent, replay=missing),
    actor=None,
    meta_value=inner_loop.meta_value.init(value_key),
    meta_opt_state=None,
  )


def complete(
  config: population.GroupConfig,
  rule_params: types.Params,
  initial: inner_loop_lib.Member,
) -> inner_loop_lib.Member:
  """Gives newborn members an empty replay, and moments of eta's optimiser."""
  (share,) = initial.agent.key.shape
  every = lambda x: jnp.tile(x, (share, *[1] * x.ndim))
  empty = config.inner_loop.agent.empty_replay()
  return dataclasses.replace(
    initial,
    agent=dataclasses.replace(initial.agent, replay=jax.tree.map(every, empty)),
    meta_opt_state=jax.tree.map(every, config.optimizer.init(rule_params)),
  )


def replace_where(
  over: types.Array,
  initial: inner_loop_lib.Member,
  members: inner_loop_lib.Member,
) -> inner_loop_lib.Member:
  """Takes the newborn members where a life is over; see `population.Group`."""
  # An empty replay is one in which nothing counts as filled: its storage, most
  # of a member's memory, stays as it is.
  replay = members.agent.replay
  replay = dataclasses.replace(replay, added=jnp.zeros_like(replay.added))
  initial = dataclasses.replace(
    initial,
    agent=dataclasses.replace(initial.agent, replay=replay),
    meta_opt_state=members.meta_opt_state,
  )
  choose = lambda over, new, old: jax.tree.map(
    lambda x, y: jnp.where(over, x, y), new, old
  )
  return jax.vmap(choose)(over, initial, members)
