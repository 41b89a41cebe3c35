"""Initial members of the population, which also replace expired ones."""

from collections.abc import Callable
import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import variation as variation_lib

_NONE = variation_lib.VariationConfig()


def initial_member(
  inner_loop: inner_loop_lib.InnerLoop,
  key: types.Array,
  environment: base.JaxEnvironment | None = None,
  variation: variation_lib.VariationConfig = _NONE,
) -> inner_loop_lib.Member:
  """Makes a member without replay and optimizer of eta; see `complete`."""
  agent = inner_loop.agent
  if environment is not None:
    key, actor_key = jax.random.split(key)
    actors = agent.init_actor(actor_key, environment)
  agent_key, value_key = jax.random.split(key)
  missing: types.PyTree = None
  state = variation_lib.draw(variation, agent.init(agent_key))
  if environment is None:
    actors = jax.tree.map(jnp.copy, state.learner.params)
  return inner_loop_lib.Member(
    agent=dataclasses.replace(state, replay=missing),
    actor=actors,
    meta_value=inner_loop.meta_value.init(value_key),
    meta_opt_state=None,
  )


def complete(
  empty_replay: Callable[[], types.PyTree],
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  initial: inner_loop_lib.Member,
) -> inner_loop_lib.Member:
  """Adds replay and initial optimizers of eta to `initial_member`s [n, ...]."""
  # [n], or [n, agents] if members have several.
  shape = initial.agent.key.shape

  def tiled(tree: types.PyTree, shape: tuple[int, ...]) -> types.PyTree:
    return jax.tree.map(lambda x: jnp.tile(x, (*shape, *[1] * x.ndim)), tree)

  members = dataclasses.replace(
    initial.replace_agent(replay=tiled(empty_replay(), shape)),
    meta_opt_state=tiled(optimizer.init(rule_params), shape[:1]),
  )
  return members.begin(rule_params)


def replace_where(
  expired: types.Array,
  initial: inner_loop_lib.Member,
  members: inner_loop_lib.Member,
) -> inner_loop_lib.Member:
  """Replaces members with expired lifetimes by initial ones, [n, ...]."""
  return jax.vmap(optax.tree.where)(expired, members.restart(initial), members)
