"""Trains an agent with Disco103 in Gymnasium's CartPole, then plays with it.

  python -m examples.cartpole --updates=400

Replace `make_env` and `torso` by your own functions; a torso may use Haiku.
"""

import argparse

import gymnasium
import haiku as hk
import jax
import numpy as np

import disco_rl


def torso(observation: jax.Array) -> jax.Array:
  """Embeds observations, [N, 4] -> [N, 128]."""
  return hk.nets.MLP([128, 128])(observation)


def make_env() -> gymnasium.Env:
  """Makes one environment; the trainer calls it as often as needed."""
  return gymnasium.make('CartPole-v1')


def play(trainer: disco_rl.Trainer, num_episodes: int) -> float:
  """Returns the mean return of episodes with the most likely actions."""
  env = make_env()
  returns = []
  for seed in range(num_episodes):
    observation, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
      action = trainer.act(observation, greedy=True)
      observation, reward, terminated, truncated, _ = env.step(action)
      total += float(reward)
      is_over = terminated or truncated
    returns.append(total)
  env.close()
  return float(np.mean(returns))


def main() -> None:
  """Trains, saves the agent, and plays ten episodes with it."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='disco103')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--updates', type=int, default=400)
  parser.add_argument('--save', default='runs/cartpole.npz')
  flags = parser.parse_args()

  trainer = disco_rl.Trainer(
    make_env,
    flags.rule,
    torso=torso,
    seed=flags.seed,
    num_environments=8,
    batch_size=64,
    unroll_length=28,
    learning_rate=1e-2,  # At 1e-3 Disco103 has learned nothing by update 400.
  )
  while trainer.updates < flags.updates:
    metrics = trainer.train(min(20, flags.updates - trainer.updates), 20)
    print(f'update {trainer.updates}: return {metrics["return"][-1]:.1f}')
  trainer.save(flags.save)
  print(f'mean return of ten episodes: {play(trainer, 10):.1f}')
  trainer.close()


if __name__ == '__main__':
  main()
