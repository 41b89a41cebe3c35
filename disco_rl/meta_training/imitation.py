"""Trains a rule that imitates the policy gradient, to start discovery from.

Agents learn nothing from an untrained rule, and a small discovery needs most of
its meta-steps to change that. The rule that it finds hardly responds to large,
rare advantages, which occur with sparse rewards. `train` fits the meta-network
to

  pi_hat = pi + strength * A * (onehot(a) - pi),

where a is the taken action and A its normalized advantage, with a lower bound
on probabilities. The gradient of KL(pi_hat || pi) with respect to the logits,
pi - pi_hat, is then the policy gradient. The inputs are random: training needs
no environment and no agent. y_hat and z_hat remain random; discovery gives them
their meaning.
"""

from collections.abc import Callable
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.maths import categorical
from disco_rl.maths import value_targets
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network

# The factor of the advantage and its bound, at the start and at the end. With a
# weak target the network would only copy the policy; with a strong one it finds
# the advantage first.
STRENGTH = (1.0, 0.3)
BOUND = (3.0, 12.0)
# The fractions of the steps between which they change.
_CHANGE = (0.3, 0.7)
# The minimal probability in the target of pi_hat, before it is normalized.
MIN_PROBABILITY = 1e-4

_LEARNING_RATE = 5e-3
_WARM_UP = 0.125  # The fraction of the steps with rising learning rate.
_LENGTH, _BATCH = 20, 24
_NUM_ACTIONS = (3, 5)


def train(
  key: types.Array,
  config: meta_network.MetaNetworkConfig,
  steps: int,
  report: Callable[[float, float], None],
) -> types.Params:
  """Fits an untrained meta-network; returns eta.

  Args:
    key: A PRNG key.
    config: The sizes of the meta-network.
    steps: The number of steps of Adam, with a warm-up and a cosine decay to
      zero.
    report: Called after each step with the mean squared distances, summed over
      actions, of pi_hat from its target, and of the target from the policy.

  Raises:
    ValueError: The network does not read advantages.
  """
  if not config.has_q:
    raise ValueError(
      'rule_has_q=False: a rule without q reads no advantages, so it cannot '
      'imitate the policy gradient.'
    )
  optimizer = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adam(
      # Without warm-up, some networks never find the advantage.
      optax.warmup_cosine_decay_schedule(
        0.0, _LEARNING_RATE, int(_WARM_UP * steps), steps
      )
    ),
  )

  @jax.jit
  def step(
    params: types.Params, opt_state: optax.OptState, i: types.Array
  ) -> tuple[types.Params, optax.OptState, tuple[types.Array, types.Array]]:
    begin, end = _CHANGE
    progress = jnp.clip((i / steps - begin) / (end - begin), 0.0, 1.0)
    loss = functools.partial(_loss, config, progress=progress)
    gradient, distances = jax.grad(loss, has_aux=True)(
      params, jax.random.fold_in(key, i + 1)
    )
    updates, opt_state = optimizer.update(gradient, opt_state)
    return optax.apply_updates(params, updates), opt_state, distances

  params = meta_network.init(jax.random.fold_in(key, 0), config)
  opt_state = optimizer.init(params)
  for i in range(steps):
    params, opt_state, (error, signal) = step(params, opt_state, jnp.int32(i))
    report(float(error), float(signal))
  return params


def target(
  logits: types.Array,
  action: types.Array,
  advantage: types.Array,
  strength: float | types.Array,
  bound: float | types.Array,
) -> types.Array:
  """Computes logits of the target of pi_hat, [..., A].

  Probabilities below `MIN_PROBABILITY` are raised to it.

  Args:
    logits: The logits of the policy, [..., A].
    action: The taken action, [...].
    advantage: The normalized advantage of the action, [...].
    strength: The factor of the advantage.
    bound: The bound of the advantage's absolute value.
  """
  step = strength * jnp.clip(advantage, -bound, bound)
  taken = jax.nn.one_hot(action, logits.shape[-1], dtype=logits.dtype)
  policy = jax.nn.softmax(logits)
  moved = policy + step[..., None] * (taken - policy)
  return jnp.log(jnp.maximum(moved, MIN_PROBABILITY))


def _loss(
  config: meta_network.MetaNetworkConfig,
  params: types.Params,
  key: types.Array,
  progress: types.Array,
) -> tuple[types.Array, tuple[types.Array, types.Array]]:
  """Computes KL(target || pi_hat) divided by the strength, and distances."""
  between = lambda ends: ends[0] * (ends[1] / ends[0]) ** progress
  strength, bound = between(STRENGTH), between(BOUND)
  total, errors, signals = jnp.zeros(()), [], []
  for num_actions in _NUM_ACTIONS:
    key, input_key, state_key = jax.random.split(key, 3)
    inputs = _random_inputs(input_key, config, num_actions)
    outputs, _ = meta_network.transform(config).apply(
      params, inputs, _random_state(state_key, config)
    )
    assert inputs.estimates is not None
    logits = inputs.outputs['logits'][:-1]
    wanted = target(
      logits,
      inputs.rollout.action[:-1],
      inputs.estimates.normalized_advantage,
      strength,
      bound,
    )
    kl = categorical.kl_divergence(wanted, outputs.pi)
    total += jnp.mean(kl) / strength / len(_NUM_ACTIONS)
    errors.append(_distance(wanted, outputs.pi))
    signals.append(_distance(wanted, logits))
  return total, (jnp.mean(jnp.stack(errors)), jnp.mean(jnp.stack(signals)))


def _distance(x: types.Array, y: types.Array) -> types.Array:
  """Computes the mean squared distance of policies from their logits."""
  difference = jax.nn.softmax(x) - jax.nn.softmax(y)
  return jnp.mean(jnp.sum(jnp.square(difference), axis=-1))


class _Draws:
  """A source of random arrays [T+1, B, ...], from one key."""

  def __init__(self, key: types.Array):
    self._key, self._count = key, 0

  def key(self) -> types.Array:
    """Returns a new key."""
    self._count += 1
    return jax.random.fold_in(self._key, self._count)

  def normal(self, *shape: int) -> types.Array:
    """Draws standard normal numbers [T+1, B, *shape]."""
    return jax.random.normal(self.key(), (_LENGTH + 1, _BATCH, *shape))

  def scale(self, low: float, high: float, rank: int = 1) -> types.Array:
    """Draws log-uniform numbers by trajectory, [1, B] and `rank` more axes."""
    log = jax.random.uniform(
      self.key(), (_BATCH,), minval=jnp.log(low), maxval=jnp.log(high)
    )
    return jnp.exp(log).reshape(1, _BATCH, *(1,) * rank)

  def happens(self, probability: float) -> types.Array:
    """Draws booleans [T, B]."""
    return jax.random.bernoulli(self.key(), probability, (_LENGTH, _BATCH))


def _random_inputs(
  key: types.Array, config: meta_network.MetaNetworkConfig, num_actions: int
) -> meta_features.MetaInputs:
  """Draws inputs like those of agents of all ages, with all scales."""
  draws = _Draws(key)
  logits = draws.scale(0.05, 6.0) * draws.normal(num_actions)
  # The logits of the target network and the behavior policy are similar.
  target_logits, behavior = (
    logits + draws.scale(0.01, 0.5) * draws.normal(num_actions)
    for _ in range(2)
  )
  outputs, target_outputs = {'logits': logits}, {'logits': target_logits}
  shapes: dict[str, tuple[int, ...]] = {}
  if size := config.prediction_size:
    shapes = {'y': (size,), 'z': (num_actions, size)}
  for name, shape in shapes.items():
    prediction = draws.scale(0.1, 3.0, len(shape)) * draws.normal(*shape)
    outputs[name] = prediction
    target_outputs[name] = prediction + 0.1 * draws.normal(*shape)
  rollout = types.Rollout(
    observation=draws.normal(),
    action=jax.random.categorical(draws.key(), behavior).astype(jnp.int32),
    logits=behavior,
    reward=draws.happens(0.15) * draws.normal()[:-1],
    is_terminal=draws.happens(0.05),
    mask=jnp.ones((_LENGTH, _BATCH), bool),
  )
  return meta_features.MetaInputs(
    rollout=rollout,
    outputs=outputs,
    target_outputs=target_outputs,
    estimates=_random_estimates(draws, num_actions),
  )


def _random_estimates(
  draws: _Draws, num_actions: int
) -> value_targets.RetraceEstimates:
  """Draws values of all scales, and heavy-tailed advantages."""
  scale = draws.scale(0.05, 2.0)
  value = scale * draws.normal(1)
  normalized = jnp.clip(
    draws.scale(0.2, 1.2, 0) * draws.normal() * jnp.exp(0.9 * draws.normal())
    + 0.2 * draws.normal(),
    -BOUND[1],
    BOUND[1],
  )[:-1]
  # The deviation of advantages is half of that of values.
  deviation = 0.5 * scale
  advantage = deviation[..., 0] * normalized
  of_actions = 0.6 * draws.normal(num_actions)
  q_value = value + 0.3 * scale * draws.normal(num_actions)
  value = value[..., 0]
  return value_targets.RetraceEstimates(
    value=value,
    q_value=q_value,
    target_q_value=q_value + 0.05 * scale * draws.normal(num_actions),
    q_target=value[:-1] + advantage,
    q_td=advantage,
    normalized_q_td=normalized,
    advantage=advantage,
    normalized_advantage=normalized,
    qv_advantage=deviation * of_actions,
    normalized_qv_advantage=of_actions,
  )


def _random_state(
  key: types.Array, config: meta_network.MetaNetworkConfig
) -> hk.LSTMState | None:
  """Draws a state of the meta-RNN, the initial one with probability 0.3."""
  initial = meta_network.initial_state(config)
  if initial is None:
    return None
  hidden, cell, choice = jax.random.split(key, 3)
  random = hk.LSTMState(
    hidden=jnp.tanh(jax.random.normal(hidden, initial.hidden.shape)),
    cell=jax.random.normal(cell, initial.cell.shape),
  )
  is_initial = jax.random.bernoulli(choice, 0.3)
  return optax.tree.where(is_initial, initial, random)
