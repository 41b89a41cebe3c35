"""Initial members of the population, which also replace expired ones."""

from collections.abc import Callable
import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_collector
from disco_rl.environments import base
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import variation as variation_lib

_NONE = variation_lib.VariationConfig()


def initial_member(
  inner_loop: inner_loop_lib.InnerLoop,
  key: types.Array,
  environment: base.JaxEnvironment | None = None,
  variation: variation_lib.VariationConfig = _NONE,
) -> inner_loop_lib.Newborn:
  """Makes what is new of a member, to which `complete` adds the rest.

  Without a JAX-native environment, the agent acts on the host.
  """
  agent = inner_loop.agent
  state: agent_lib.AgentState
  if environment is None:
    agent_key, value_key = jax.random.split(key)
    state = host_collector.init(agent, agent_key)
  else:
    key, environment_key = jax.random.split(key)
    agent_key, value_key = jax.random.split(key)
    state = agent.init(agent_key, environment_key, environment)
  learner, key = variation_lib.draw(variation, state.learner, state.acting.key)
  return inner_loop_lib.Newborn(
    learner,
    inner_loop.meta_value.init(value_key),
    dataclasses.replace(state.acting, key=key),
  )


def complete(
  empty_replay: Callable[[], types.PyTree],
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  initial: inner_loop_lib.Newborn,
) -> inner_loop_lib.Member:
  """Adds replay and initial optimizers of eta to `initial_member`s [n, ...]."""
  # [n], or [n, agents] if members have several.
  shape = initial.acting.key.shape

  def tiled(tree: types.PyTree, shape: tuple[int, ...]) -> types.PyTree:
    return jax.tree.map(lambda x: jnp.tile(x, (*shape, *[1] * x.ndim)), tree)

  return inner_loop_lib.Member(
    **vars(initial),
    replay=tiled(empty_replay(), shape),
    meta_opt_state=tiled(optimizer.init(rule_params), shape[:1]),
  )


def replace_where(
  expired: types.Array,
  initial: inner_loop_lib.Newborn,
  members: inner_loop_lib.DeviceMember,
) -> inner_loop_lib.DeviceMember:
  """Replaces members with expired lifetimes by initial ones, [n, ...]."""
  return jax.vmap(optax.tree.where)(expired, members.restart(initial), members)
