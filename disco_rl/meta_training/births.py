"""How members of a population come into the world."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import compilation
from disco_rl import sharding
from disco_rl import types
from disco_rl.meta_training import living as living_lib
from disco_rl.meta_training import population


class Births:
  """Programs that make members, whatever their environments."""

  def __init__(
    self, config: population.GroupConfig, newborns: compilation.Program
  ):
    """Compiles nothing yet.

    Args:
      config: what the members share.
      newborns: makes members without what `complete` adds, of keys [n].
    """
    self._config = config
    self._newborns = newborns
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
    programs = (self._newborns, self._complete, self._replace)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params, *environments: Any
  ) -> living_lib.Member:
    """See `population.Group.init`."""
    newborns = self._newborns(self._config.split(keys), *environments)
    return self._complete(rule_params, newborns)

  def renew(
    self,
    keys: types.Array,
    members: living_lib.Member,
    over: np.ndarray,
    *environments: Any,
  ) -> living_lib.Member:
    """See `population.Group.renew`."""
    split = self._config.split
    newborns = self._newborns(split(keys), *environments)
    return self._replace(split(jnp.asarray(over)), newborns, members)


def newborn(living: living_lib.Living, key: types.Array) -> living_lib.Member:
  """A member without what `complete` adds, and without environments."""
  agent_key, value_key = jax.random.split(key)
  missing: Any = None
  agent = living.agent.init(agent_key)
  return living_lib.Member(
    agent=dataclasses.replace(agent, replay=missing),
    actor=None,
    meta_value=living.meta_value.init(value_key),
    meta_opt_state=None,
  )


def complete(
  config: population.GroupConfig,
  rule_params: types.Params,
  newborns: living_lib.Member,
) -> living_lib.Member:
  """Gives newborn members an empty replay, and moments of eta's optimiser."""
  (share,) = newborns.agent.key.shape
  every = lambda x: jnp.tile(x, (share, *[1] * x.ndim))
  empty = config.living.agent.empty_replay()
  return dataclasses.replace(
    newborns,
    agent=dataclasses.replace(
      newborns.agent, replay=jax.tree.map(every, empty)
    ),
    meta_opt_state=jax.tree.map(every, config.optimizer.init(rule_params)),
  )


def replace_where(
  over: types.Array, newborns: living_lib.Member, members: living_lib.Member
) -> living_lib.Member:
  """Takes the newborn members where a life is over; see `population.Group`."""
  # An empty replay is one in which nothing counts as filled: its storage, most
  # of a member's memory, stays as it is.
  replay = members.agent.replay
  replay = dataclasses.replace(replay, added=jnp.zeros_like(replay.added))
  newborns = dataclasses.replace(
    newborns,
    agent=dataclasses.replace(newborns.agent, replay=replay),
    meta_opt_state=members.meta_opt_state,
  )
  choose = lambda over, new, old: jax.tree.map(
    lambda x, y: jnp.where(over, x, y), new, old
  )
  return jax.vmap(choose)(over, newborns, members)
