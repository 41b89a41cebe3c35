"""Draws random rules until pi_hat depends on the action.

The policy embedding ends in a few ReLU channels. If they are dead, pi_hat is
the same for every action, and no gradient can change that.
"""

import functools
import math

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.runtime import compilation

MIN_SPREAD = 5e-4
_MAX_DRAWS = 100
_SHAPE = (8, 16, 3)


def draw(
  key: types.Array, config: meta_network.MetaNetworkConfig
) -> types.Params:
  """Draws rules until one has a `spread` of pi_hat over actions.

  Raises:
    ValueError: No such rule was found.
  """
  for i in range(_MAX_DRAWS):
    params, value = _program(config)(jax.random.fold_in(key, i))
    if value >= MIN_SPREAD:
      return params
  raise ValueError(
    f'{_MAX_DRAWS} untrained rules emit the same pi_hat for every action. '
    f'rule_policy_channels={config.policy_channels} are too narrow: widen the '
    'last.'
  )


@functools.lru_cache(maxsize=8)
def _program(config: meta_network.MetaNetworkConfig) -> compilation.Program:
  """Makes the program from a key to a rule and its spread."""

  def attempt(key: types.Array) -> tuple[types.Params, types.Array]:
    init_key, probe_key = jax.random.split(key)
    params = meta_network.init(init_key, config)
    return params, spread(probe_key, config, params)

  return compilation.Program(attempt, runs_often=False)


def spread(
  key: types.Array,
  config: meta_network.MetaNetworkConfig,
  params: types.Params,
) -> types.Array:
  """Computes how much pi_hat differs between actions at the first update, [].

  This is the mean over random inputs of the deviation of pi_hat over actions.
  """
  outputs, _ = meta_network.transform(config).apply(
    params,
    _random_inputs(key, config),
    meta_network.initial_state(config),
  )
  return jnp.mean(jnp.std(outputs.pi, axis=-1))


def _random_inputs(
  key: types.Array, config: meta_network.MetaNetworkConfig
) -> meta_features.MetaInputs:
  """Draws inputs like those of an initial agent."""
  length, batch, num_actions = _SHAPE
  action_key, key = jax.random.split(key)
  # One draw for all numbers, vectors over actions, and predictions: seventeen
  # draws take a third longer to trace and compile.
  width = 8 + 6 * num_actions + (1 + num_actions) * config.prediction_size
  drawn = 0.1 * jax.random.normal(key, (length + 1, batch, width))
  taken = 0

  def small(*shape: int) -> types.Array:
    nonlocal taken
    start, taken = taken, taken + math.prod(shape)
    return drawn[..., start:taken].reshape(length + 1, batch, *shape)

  step = lambda: small()[:-1]
  rollout = types.Rollout(
    observation=small(),
    action=jax.random.randint(
      action_key, (length + 1, batch), 0, num_actions, jnp.int32
    ),
    logits=small(num_actions),
    reward=step(),
    is_terminal=jnp.zeros((length, batch), bool),
    mask=jnp.ones((length, batch), bool),
  )
  outputs = {'logits': small(num_actions)}
  if config.prediction_size:
    outputs['y'] = small(config.prediction_size)
    outputs['z'] = small(num_actions, config.prediction_size)
  estimates = value_targets.RetraceEstimates(
    value=small(),
    q_value=small(num_actions),
    target_q_value=small(num_actions),
    q_target=step(),
    q_td=step(),
    normalized_q_td=step(),
    advantage=step(),
    normalized_advantage=10.0 * step(),
    qv_advantage=small(num_actions),
    normalized_qv_advantage=10.0 * small(num_actions),
  )
  return meta_features.MetaInputs(
    rollout=rollout,
    outputs=outputs,
    target_outputs=outputs,
    estimates=estimates if config.has_q else None,
  )
