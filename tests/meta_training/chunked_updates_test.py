"""Updates whose torso computes in chunks: equal results in less memory.

tests/sharded.py compares whole meta-steps.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.maths import mixed_mode
from disco_rl.meta_training import meta_value
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import policy_gradient

T, B, A = 4, 3, 3


def make_spec(*image: int) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(jax.ShapeDtypeStruct(image, np.uint8), A)


def make_network(
  spec: types.EnvironmentSpec, core_lstm: int, dtype: str, chunk_size: int
) -> agent_network.AgentNetwork:
  return agent_network.make(
    spec,
    types.OutputSpec(state={'y': 4}, action={'z': 4}),
    agent_network.AgentNetworkConfig(
      torsos.TorsoConfig('resnet', (4,), (6,), chunk_size=chunk_size),
      core_lstm=core_lstm,
      action_model_lstm=4,
      action_model_head=5,
      compute_dtype=dtype,
    ),
  )


def loss_of(network: agent_network.AgentNetwork) -> mixed_mode.Loss:
  """A loss of the taken outputs that is linear in none of them."""

  def loss(
    params: types.Params, targets: Any, rollout: types.Rollout
  ) -> types.Array:
    _, taken = network.unroll(params, rollout)
    return sum(
      jnp.mean(jnp.sin(taken[name] * target))
      for name, target in targets.items()
    )

  return loss


@pytest.mark.slow
@pytest.mark.parametrize(
  'core_lstm, dtype, tolerance',
  [(6, 'float32', 1e-5), (0, 'bfloat16', 0.02)],
)
def test_products_of_the_sweep_agree(
  core_lstm: int, dtype: str, tolerance: float
) -> None:
  """In mixed mode, and reverse over reverse, as in plain mode."""
  spec = make_spec(6, 5, 2)
  rng = np.random.default_rng(0)

  network = make_network(spec, core_lstm, dtype, 0)
  params, direction = (
    jax.jit(network.init)(jax.random.key(i)) for i in range(2)
  )
  rollout = dataclasses.replace(
    types.empty_rollout(spec, network.initial_state(B), T, B),
    observation=rng.integers(0, 256, (T + 1, B, 6, 5, 2), np.uint8),
  )
  targets = {
    name: rng.normal(size=(*shape, 4)).astype(np.float32)
    for name, shape in {'y': (T + 1, B), 'z': (T, B)}.items()
  }

  def products(network: agent_network.AgentNetwork) -> Any:
    """Products of the Hessian and a direction, in both modes."""
    loss = loss_of(network)

    @jax.jit
    def run(params: types.Params, direction: types.Params) -> Any:
      gradient_of = lambda x: jax.grad(loss)(x, targets, rollout)
      gradient, pull_back = jax.vjp(gradient_of, params)
      _, pull_back_mixed = jax.vjp(
        lambda x: mixed_mode.known_gradient(
          loss, x, targets, rollout, gradient
        ),
        params,
      )
      return pull_back(direction), pull_back_mixed(direction)

    return run(params, direction)

  got, want = (
    flatten_util.ravel_pytree(products(x))[0]
    for x in (make_network(spec, core_lstm, dtype, 4), network)
  )
  error = np.linalg.norm(got - want)
  assert error <= tolerance * np.linalg.norm(want)


def temporaries(function: Callable[..., Any], *arguments: Any) -> int:
  compiled = jax.jit(function).lower(*arguments).compile()
  return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_chunks_save_memory() -> None:
  spec = make_spec(40, 40, 1)

  def measure(chunk_size: int) -> dict[str, int]:
    torso = torsos.TorsoConfig('resnet', (16,), (6,), chunk_size=chunk_size)
    agent = agent_lib.make(
      agent_lib.AgentConfig(
        agent_network.AgentNetworkConfig(torso), T, B, B, replay_capacity=B
      ),
      spec,
      policy_gradient.PolicyGradient(),
    )
    meta_values = meta_value.MetaValue(
      meta_value.MetaValueConfig(hidden_sizes=(4,)), spec, torso
    )
    state = jax.eval_shape(agent.init_learner, jax.random.key(0))
    value = jax.eval_shape(meta_values.init, jax.random.key(0))
    batch = types.empty_rollout(spec, (), T, B)

    def loss(params: types.Params) -> jax.Array:
      return jnp.sum(jnp.square(agent.network.policy(params, batch)))

    def product(params: types.Params) -> Any:
      """Forward over reverse, as in `mixed_mode`."""
      return jax.jvp(jax.grad(loss), (params,), (params,))[1]

    return {
      'update': temporaries(agent.learn, {}, state, batch),
      'product': temporaries(product, state.params),
      'meta-value': temporaries(
        meta_values.estimate_and_update, value, batch, batch.logits
      ),
    }

  whole, chunked = measure(0), measure(3)
  for name in whole:
    assert chunked[name] < 0.5 * whole[name], name
