"""Trains a causal transformer with Disco103 to write increasing digits.

  python -m examples.increasing_digits --seed=0

Every digit after the first gets a reward of 1 if it is larger than the previous
digit, else 0. All of eight digits can be rewarded only if the first are small:
early digits must leave room for later ones. The length of sequences grows from
4 to 6 to 8 digits.

There is no environment and no actor: a sequence sampled from the transformer is
a trajectory, its tokens are the actions, and `Learner.update` learns from it.
Your own rewards per token need nothing else.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import functools
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

import disco_rl

NUM_DIGITS = 10
START = NUM_DIGITS  # The token before the first digit.
SPEC = disco_rl.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((), jnp.int32), num_actions=NUM_DIGITS
)
# Number of digits, and number of updates with it.
CURRICULUM = ((4, 300), (6, 300), (8, 600))
MAX_LENGTH = 8
BATCH_SIZE = 64
LEARNING_RATE = 1e-2


# Shown as: network
@dataclasses.dataclass(frozen=True)
class Transformer:
  """The agent's network, as pure functions; `disco_rl.Learner` uses two.

  Attributes:
    init: key -> parameters.
    unroll: (parameters, rollout) -> all outputs, and those of the taken tokens.
    policy: (parameters, tokens [T, B]) -> logits [T, B, A] of what follows each
      of them.
  """

  init: Callable[[jax.Array], Any]
  unroll: Callable[[Any, Any], tuple[Any, Any]]
  policy: Callable[[Any, jax.Array], jax.Array]


def make_network(rule: Any) -> Transformer:
  """Makes a small transformer with the heads that the rule requires."""
  make_heads = functools.partial(
    disco_rl.Heads, NUM_DIGITS, rule.output_spec(NUM_DIGITS)
  )

  def apply_heads(rollout: Any) -> tuple[Any, Any]:
    return make_heads()(embed(rollout.observation), rollout.action)

  def apply_policy(tokens: jax.Array) -> jax.Array:
    return make_heads().policy(embed(tokens))

  unroll: Any = hk.without_apply_rng(hk.transform(apply_heads))
  policy: Any = hk.without_apply_rng(hk.transform(apply_policy))

  def init(key: jax.Array) -> Any:
    digits = jnp.zeros((2, 1), jnp.int32)
    return unroll.init(key, judge(digits, jnp.zeros((2, 1, NUM_DIGITS))))

  return Transformer(init=init, unroll=unroll.apply, policy=policy.apply)
  # End of: network


def embed(
  tokens: jax.Array, width: int = 64, num_layers: int = 2, num_heads: int = 4
) -> jax.Array:
  """Embeds tokens, [T, B] -> [T, B, width], each with those before it."""
  tokens = tokens.T
  length = tokens.shape[1]
  places = hk.Embed(MAX_LENGTH + 1, width, name='places')(jnp.arange(length))
  x = hk.Embed(NUM_DIGITS + 1, width, name='tokens')(tokens) + places
  is_seen = jnp.tril(jnp.ones((1, 1, length, length), bool))
  for i in range(num_layers):
    attention = hk.MultiHeadAttention(
      num_heads,
      width // num_heads,
      w_init=hk.initializers.VarianceScaling(1 / num_layers),
      model_size=width,
      name=f'attention_{i}',
    )
    normal = normalize(x)
    x += attention(normal, normal, normal, is_seen)
    x += hk.nets.MLP([4 * width, width], name=f'mlp_{i}')(normalize(x))
  return jnp.swapaxes(normalize(x), 0, 1)


def normalize(x: jax.Array) -> jax.Array:
  """Normalizes the last axis, and learns a scale and an offset."""
  return hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)


# Shown as: rollout
def judge(digits: jax.Array, logits: jax.Array) -> Any:
  """Rewards sequences; returns the rollout, B episodes of T steps.

  Args:
    digits: [T+1, B] int32; the last one belongs to no sequence, as in every
      rollout.
    logits: [T+1, B, A], from which they were sampled.
  """
  written = digits[:-1]
  is_larger = (written[1:] > written[:-1]).astype(jnp.float32)
  is_last = jnp.zeros(written.shape, bool).at[-1].set(True)
  return disco_rl.Rollout(
    observation=jnp.pad(written, ((1, 0), (0, 0)), constant_values=START),
    action=digits,
    logits=logits,
    reward=jnp.pad(is_larger, ((1, 0), (0, 0))),
    is_terminal=is_last,
    mask=jnp.ones(written.shape, bool),
  )
  # End of: rollout


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def write(
  network: Transformer,
  params: Any,
  key: jax.Array,
  length: int,
  batch_size: int,
) -> Any:
  """Samples B sequences of T digits, one by one; returns their rollout."""

  def step(tokens: jax.Array, x: tuple[jax.Array, jax.Array]) -> Any:
    t, key = x
    logits = network.policy(params, tokens)[t]
    digit = jax.random.categorical(key, logits).astype(jnp.int32)
    return tokens.at[t + 1].set(digit, mode='drop'), (digit, logits)

  # The network does not see tokens that are not written yet.
  tokens = jnp.full((length + 1, batch_size), START)
  times, keys = jnp.arange(length + 1), jax.random.split(key, length + 1)
  _, (digits, logits) = jax.lax.scan(step, tokens, (times, keys))
  return judge(digits, logits)


def accuracy(rollout: Any) -> float:
  """Returns the fraction of digits that are larger than the one before."""
  return float(jnp.mean(rollout.reward[1:]))


def train(
  rule: Any,
  seed: int,
  curriculum: Iterable[tuple[int, int]] = CURRICULUM,
  batch_size: int = BATCH_SIZE,
  learning_rate: float = LEARNING_RATE,
) -> tuple[Transformer, Any, list[float]]:
  """Trains a transformer with a rule from `disco_rl.load_rule`.

  Args:
    rule: The rule.
    seed: The seed of all random numbers.
    curriculum: The lengths of sequences, each with its number of updates.
    batch_size: The number of sequences in an update.
    learning_rate: The step size of Adam.

  Returns:
    The network, its parameters, and the accuracy before each update.
  """
  # Shown as: train
  network = make_network(rule)
  learner = disco_rl.Learner(network, SPEC, rule, learning_rate=learning_rate)
  key, init_key = jax.random.split(jax.random.key(seed))
  state = learner.init(init_key)
  accuracies = []
  for length, num_updates in curriculum:
    for update in range(num_updates):
      key, write_key = jax.random.split(key)
      rollout = write(network, state.params, write_key, length, batch_size)
      state, metrics = learner.update(state, rollout)
      accuracies.append(accuracy(rollout))
      # End of: train
      if update % 50 == 49:
        recent = sum(accuracies[-50:]) / 50
        entropy = float(metrics['policy_entropy'])
        print(
          f'{length} digits, update {update + 1}: accuracy {recent:.3f}, '
          f'entropy {entropy:.2f}',
          flush=True,
        )
  return network, state.params, accuracies


def main() -> None:
  """Trains, then scores 1,000 new sequences of the longest kind."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='disco103')
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args()
  network, params, _ = train(disco_rl.load_rule(flags.rule), flags.seed)
  rollout = write(network, params, jax.random.key(0), MAX_LENGTH, 1000)
  for digits in rollout.action[:-1, :5].T.tolist():
    print(*digits)
  print(f'accuracy of 1,000 samples: {accuracy(rollout):.3f}')


if __name__ == '__main__':
  main()
