"""Trains an agent with PPO in Gymnasium's CartPole, then plays with it.

  python -m examples.cartpole

100,000 environment steps; a pole that stands for 500 steps is solved.

Replace `make_env` and `torso` by your own functions; a torso may use Haiku.
"""

import argparse

import gymnasium
import haiku as hk
import jax
import numpy as np

import disco_rl


def torso(observation: jax.Array) -> jax.Array:
  """Embeds observations, [N, 4] -> [N, 64]."""
  layers = hk.nets.MLP([64, 64], activation=jax.nn.tanh, activate_final=True)
  return layers(observation)


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
  parser.add_argument('--rule', default='ppo')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--updates', type=int, default=3200)
  parser.add_argument('--save', default='runs/cartpole.npz')
  flags = parser.parse_args()

  trainer = disco_rl.Trainer(make_env, flags.rule, torso=torso, seed=flags.seed)
  trainer.train(
    flags.updates,
    log_every=320,
    callback=lambda row: print(
      f'update {row["update"]}: return {row["return"]:.1f}'
    ),
  )
  trainer.save(flags.save)
  print(f'mean return of ten episodes: {play(trainer, 10):.1f}')
  trainer.close()


if __name__ == '__main__':
  main()
