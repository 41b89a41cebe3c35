"""Votes of members for a change of the rule."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import population
from disco_rl.runtime import sharding


def member_update(
  config: population.GroupConfig,
  rule_params: types.Params,
  member: inner_loop_lib.Member,
  gradient: types.Params,
  logs: types.Logs,
) -> population.MetaUpdates:
  """Puts a member's gradient through its own optimiser.

  Where the gradient or a loss is not finite, the vote is zero and the optimiser
  stays as it was.

  Args:
    config: of the member's group.
    rule_params: eta.
    member: that votes.
    gradient: of the outer loss.
    logs: of the member, scalars.

  Returns:
    The vote, the member, and logs; `failed` is 1 where something was not
    finite.
  """
  updates, opt_state = config.optimizer.update(
    gradient, member.meta_opt_state, rule_params
  )
  logs = {
    **logs,
    'meta_gradient_norm': optax.tree.norm(gradient),
    'meta_update_norm': optax.tree.norm(updates),
  }
  is_finite = jnp.isfinite(jnp.stack(jax.tree.leaves(logs))).all()
  keep = lambda new, old: jax.tree.map(
    lambda x, y: jnp.where(is_finite, x, y), new, old
  )
  updates = keep(updates, optax.tree.zeros_like(updates))
  opt_state = keep(opt_state, member.meta_opt_state)
  logs = {
    **logs,
    # It has no value before an episode ends.
    'return': episodes.mean_return(member.agent.episodes),
    'failed': 1.0 - is_finite,
  }
  return updates, dataclasses.replace(member, meta_opt_state=opt_state), logs


def sum_updates(
  config: population.GroupConfig,
  rule_params: types.Params,
  function: Callable[..., population.MetaUpdates],
  *trees: Any,
) -> population.MetaUpdates:
  """Maps over members in chunks; updates are summed on the way."""
  size = config.chunk

  def chunk(total: types.Params | None, trees: Any) -> tuple[Any, Any]:
    updates, members, logs = chunks.mapped(size, function)(*trees)
    if size > 1:
      updates = jax.tree.map(lambda x: jnp.sum(x, axis=0), updates)
    return optax.tree.add(total, updates), (members, logs)

  zeros = optax.tree.zeros_like(rule_params)
  updates, (members, logs) = jax.lax.scan(
    chunk, zeros, chunks.split(size, trees)
  )
  members, logs = chunks.join(size, (members, logs))
  return sharding.as_summand(updates), members, logs
