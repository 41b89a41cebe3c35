"""A custom network: a torso of residual layers, on Catch.

  python -m examples.own_network

A torso maps observations to embeddings; the heads that the rule needs are put
on top of it. Registered by name, it is also a setting of the launchers.
"""

import argparse

import haiku as hk
import jax
import numpy as np

import disco_rl
from disco_rl.networks import torsos


# Shown as: torso
def residual(observation: jax.Array) -> jax.Array:
  """Applies two residual blocks.

  Args:
    observation: [N, rows, columns].

  Returns:
    The embedding, [N, 64].
  """
  x = hk.Linear(64)(hk.Flatten()(observation))
  for _ in range(2):
    normal = hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
    x += hk.nets.MLP([128, 64])(normal)
  return jax.nn.relu(x)


torsos.register('residual', residual)
# End of: torso


# Shown as: train
def train(rule: str, updates: int) -> np.ndarray:
  """Trains an agent; returns its mean return, every ten updates."""
  trainer = disco_rl.Trainer(
    'catch/5x5',
    rule,
    torso=residual,  # Or by name, torso='residual'.
    num_environments=16,
    batch_size=64,
    unroll_length=16,
    learning_rate=1e-2,
  )
  return trainer.train(updates)['return']
  # End of: train


def main() -> None:
  """Trains, and prints how the return grows."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='disco103')
  parser.add_argument('--updates', type=int, default=400)
  flags = parser.parse_args()
  returns = train(flags.rule, flags.updates)
  for update, mean_return in zip(range(10, flags.updates + 10, 10), returns):
    print(f'update {min(update, flags.updates)}: return {mean_return:.2f}')


if __name__ == '__main__':
  main()
