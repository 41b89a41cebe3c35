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
  state = variation_lib.draw(variation, agent, agent.init(agent_key))
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
  (n,) = initial.agent.key.shape
  tile = lambda x: jnp.tile(x, (n, *[1] * x.ndim))
  members = initial.replace_agent(replay=jax.tree.map(tile, empty_replay()))
  return dataclasses.replace(
    members, meta_opt_state=jax.tree.map(tile, optimizer.init(rule_params))
  )


def replace_where(
  expired: types.Array,
  initial: inner_loop_lib.Member,
  members: inner_loop_lib.Member,
) -> inner_loop_lib.Member:
  """Replaces members with expired lifetimes by initial ones, [n, ...]."""
  # Replay is emptied by its counts: its storage, most of a member's memory, is
  # unchanged.
  replay = members.agent.replay
  replay = dataclasses.replace(replay, added=jnp.zeros_like(replay.added))
  initial = dataclasses.replace(
    initial.replace_agent(replay=replay), meta_opt_state=members.meta_opt_state
  )
  return jax.vmap(optax.tree.where)(expired, initial, members)
