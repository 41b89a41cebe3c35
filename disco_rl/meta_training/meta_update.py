"""The meta-update: one Adam per agent, averaged over the population.

  eta <- eta + (1 / n) sum_i Adam_i(g_i)

g_i is the meta-gradient of agent i, and Adam_i its own optimizer of the rule's
parameters, eta. The meta-gradients of agents differ by orders of magnitude.
Because each agent has its own second moments, all agents have the same
influence. The variant with one Adam for all agents is
eta <- eta + Adam((1 / n) sum_i g_i).

At high learning rates eta fluctuates between meta-steps; its mean over
meta-steps, which `averaging` keeps next to it, fluctuates less.

`member_update` computes Adam_i(g_i), `sum_over_members` the sum over the agents
of a device, and `apply_mean` sums over groups and devices and changes eta.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.maths import optimizers
from disco_rl.meta_training import chunks
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.runtime import sharding

# Updates of eta, the members, and logs. For one member, without leading axes;
# for a group, sums of updates [devices, ...], members [n, ...] and logs [n].
MetaUpdates = tuple[types.Params, inner_loop_lib.Member, types.Logs]


def per_agent_adam(
  learning_rate: float, max_gradient_norm: float, decay_steps: int = 0
) -> optax.GradientTransformation:
  """Makes Adam_i, from an agent's meta-gradient to its update of eta.

  A shared Adam takes the mean of all agents' meta-gradients.

  Args:
    learning_rate: The learning rate of Adam.
    max_gradient_norm: The norm to which larger gradients are scaled down.
    decay_steps: The meta-steps after which a cosine schedule of the learning
      rate reaches zero; 0: it is constant.
  """
  schedule = optimizers.schedule(learning_rate, decay_updates=decay_steps)
  return optax.chain(
    optax.clip_by_global_norm(max_gradient_norm),
    optax.flatten(optax.adam(schedule)),  # As in `variation.prepare`.
  )


def meta_optimizers(
  config: meta_config.MetaTrainingConfig,
) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
  """Makes the optimizers of each agent, and of the mean of their updates.

  One is Adam, the other the identity, by `MetaTrainingConfig.adam_per_agent`.
  If `MetaTrainingConfig.average_rule` is set, `averaging` follows the second.
  """
  adam = per_agent_adam(
    config.meta_learning_rate,
    config.max_meta_gradient_norm,
    config.meta_decay_steps,
  )
  member_optimizer, mean_optimizer = adam, optax.identity()
  if not config.adam_per_agent:
    member_optimizer, mean_optimizer = mean_optimizer, member_optimizer
  if config.average_rule:
    mean_optimizer = optax.chain(mean_optimizer, averaging())
  return member_optimizer, mean_optimizer


class AveragingState(NamedTuple):
  """The state of `averaging`: the number of updates, and the mean."""

  num_updates: types.Array
  average: types.Params


def averaging() -> optax.GradientTransformation:
  """Returns updates unchanged, and keeps a mean of the parameters.

  The parameters after the t-th update have the weight t (t + 1): this is
  polynomial-decay averaging with eta = 2 (Shamir and Zhang, 2013), which soon
  forgets the first parameters and needs no horizon.
  """

  def init(params: optax.Params) -> AveragingState:
    return AveragingState(jnp.zeros((), jnp.int32), params)

  def update(
    updates: optax.Updates,
    state: AveragingState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, AveragingState]:
    num_updates = optax.safe_increment(state.num_updates)
    weight = 3 / (num_updates + 2)
    average = jax.tree.map(
      lambda mean, new: mean + weight * (new - mean),
      state.average,
      optax.apply_updates(params, updates),
    )
    return updates, AveragingState(num_updates, average)

  return optax.GradientTransformation(init, update)


def averaged(
  opt_state: types.PyTree, rule_params: types.Params
) -> types.Params:
  """Returns the mean of eta in the state of the second of `meta_optimizers`.

  If no mean is kept, this is eta.
  """
  return optax.tree.get(opt_state, 'average', rule_params)


def member_update(
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  opt_state: types.PyTree,
  gradient: types.Params,
  logs: types.Logs,
  statistics: episodes.EpisodeStatistics,
  counts: bool | types.Array = True,
) -> tuple[types.Params, types.PyTree, types.Logs]:
  """Computes one agent's update of eta.

  If the gradient or a loss is not finite, the update is zero and the
  optimizer's state is unchanged.

  Args:
    optimizer: The result of `per_agent_adam`; the identity for a shared Adam.
    rule_params: eta.
    opt_state: The state of the agent's optimizer.
    gradient: The gradient of the outer loss with respect to eta.
    logs: The logs of the member, scalars.
    statistics: The episodes of its agents.
    counts: False for padding, whose update is zero.

  Returns:
    The update, the next state of the optimizer, and logs; `failed` is 1 if
    something was not finite.
  """
  updates, next_state = optimizer.update(gradient, opt_state, rule_params)
  logs = {
    **logs,
    'meta_gradient_norm': optax.tree.norm(gradient),
    'meta_update_norm': optax.tree.norm(updates),
  }
  is_finite = jnp.isfinite(jnp.stack(jax.tree.leaves(logs))).all()
  where = optax.tree.where
  updates = where(is_finite & counts, updates, optax.tree.zeros_like(updates))
  next_state = where(is_finite, next_state, opt_state)
  logs = {
    **logs,
    'return': _mean_return(statistics),
    'failed': 1.0 - is_finite,
  }
  return updates, next_state, logs


def _mean_return(statistics: episodes.EpisodeStatistics) -> types.Array:
  """Averages over a member's agents, [] or [agents]; NaN before an episode."""
  if not statistics.finished.ndim:
    return episodes.mean_return(statistics)
  return jnp.nanmean(jax.vmap(episodes.mean_return)(statistics))


def sum_over_members(
  chunk_size: int,
  rule_params: types.Params,
  function: Callable[..., tuple[types.Params, types.PyTree, types.Logs]],
  *trees: types.PyTree,
) -> tuple[types.Params, types.PyTree, types.Logs]:
  """Maps over a device's members in chunks, and sums their updates.

  Args:
    chunk_size: The number of members computed at a time, a divisor of n.
    rule_params: eta.
    function: A function from the trees of one member to its update, what it
      keeps, and logs, like `member_update`.
    *trees: Trees [n, ...].

  Returns:
    The sum [1, ...], what members keep [n, ...] and logs [n].
  """

  def chunk(
    total: types.Params, trees: types.PyTree
  ) -> tuple[types.PyTree, types.PyTree]:
    updates, kept, logs = chunks.mapped(chunk_size, function)(*trees)
    if chunk_size > 1:
      updates = jax.tree.map(lambda x: jnp.sum(x, axis=0), updates)
    return optax.tree.add(total, updates), (kept, logs)

  zeros = optax.tree.zeros_like(rule_params)
  total, (kept, logs) = jax.lax.scan(
    chunk, zeros, chunks.split(chunk_size, trees)
  )
  kept, logs = chunks.merge(chunk_size, (kept, logs))
  return jax.tree.map(lambda x: jnp.asarray(x)[None], total), kept, logs


def apply_mean(
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  opt_state: types.PyTree,
  updates: Sequence[types.Params],
  num_agents: int,
  mesh: jax.sharding.Mesh,
) -> tuple[types.Params, types.PyTree, types.Array]:
  """Changes eta by the mean of the agents' updates.

  Args:
    optimizer: The optimizer of the mean, the second of `meta_optimizers`.
    rule_params: eta.
    opt_state: The state of the optimizer.
    updates: The updates of each group, sums over the members of a device,
      [devices, ...].
    num_agents: n, over all groups and devices.
    mesh: The devices.

  Returns:
    The next eta and optimizer state, and the norm of the change.
  """
  of_devices = jax.tree.map(lambda *x: sum(x), *updates)
  total = _sum_over_devices(of_devices, mesh)
  mean = jax.tree.map(lambda x: x / num_agents, total)
  change, opt_state = optimizer.update(mean, opt_state, rule_params)
  rule_params = optax.apply_updates(rule_params, change)
  return rule_params, opt_state, optax.tree.norm(change)


def _sum_over_devices(
  tree: types.PyTree, mesh: jax.sharding.Mesh
) -> types.PyTree:
  """Sums trees [devices, ...] by one all-reduce."""

  def add(shard: types.PyTree) -> types.PyTree:
    flat, restore = ravel_pytree(jax.tree.map(lambda x: x[0], shard))
    return restore(
      jax.lax.psum(flat, sharding.AGENTS) if mesh.size > 1 else flat
    )

  return sharding.per_device(add, mesh, (sharding.SPLIT,), sharding.REPLICATED)(
    tree
  )
