"""Scores discovered rules in many environments, with few compiled programs.

  python -m benchmarks.rule_scores --rules=general,imitation \
    --environments=random_grid/200,random_grid/201 --learning_rates=5e-3,1e-2 \
    --output=runs/scores.csv

Agents learn as by `disco-rl sweep --config=evaluate:general`, which needs a
process for each rule, environment and rate. Here rules that differ only in
their parameters, such as discoveries of one recipe, share a program. A row of
--output is the normalized score of an agent; see docs/evaluate.md. Rows that
are in the file are not made again.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import itertools
import pathlib
from typing import Any

import jax
import numpy as np

from configs import evaluate
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.environments import registry as environments
from disco_rl.evaluation import normalization
from disco_rl.runtime import compilation_cache
from disco_rl.training import config as training_config
from disco_rl.training import parallel

COLUMNS = (
  *('rule', 'environment', 'learning_rate', 'updates_per_rollout'),
  *('rollouts', 'seed', 'score'),
)


def scores(
  names: Sequence[str], settings: Mapping[str, Any], rollouts: int
) -> Iterator[tuple[str, np.ndarray]]:
  """Trains agents in one environment by several rules.

  Args:
    names: Names or files of rules.
    settings: Flat settings as of disco-rl train, without a rule.
    rollouts: The number of rollouts of each agent.

  Yields:
    The name of a rule, and its agents' normalized scores: of the mean return
    of their last 100 episodes.
  """
  trainings: list[tuple[object, parallel.DeviceTraining]] = []
  for name in names:
    config, loaded = training_config.resolve(
      {**settings, 'rule': name}, rollouts
    )
    scale = normalization.find_scale_of_returns(config.environment)
    if scale is None:
      raise ValueError(f'{config.environment} has no scale of returns.')
    kind = (config.agent, loaded.rule)
    training = next((x for of, x in trainings if of == kind), None)
    if training is None:
      environment = environments.make(
        config.environment,
        config.seeds * config.agent.num_environments,
        config.seed,
      )
      agent = agent_lib.make(config.agent, environment.spec, loaded.rule)
      made = parallel.make(agent, environment, config.seeds)
      if not isinstance(made, parallel.DeviceTraining):
        raise ValueError(f'{config.environment} is not on the device.')
      training = made
      trainings.append((kind, training))
    keys = jax.vmap(jax.random.key)(config.seed + np.arange(config.seeds))
    state, _ = training.advance(
      loaded.params, training.init(keys), config.updates
    )
    returns = episodes.mean_return_on_host(state.acting.episodes)
    yield name, scale.normalize(returns)


def _done(path: pathlib.Path) -> set[tuple[str, ...]]:
  """Returns all columns but the score of the rows of a file."""
  if not path.exists():
    return set()
  with path.open(newline='') as file:
    return {tuple(row[x] for x in COLUMNS[:-1]) for row in csv.DictReader(file)}


def _arguments() -> argparse.Namespace:
  """Reads the command line."""
  parser = argparse.ArgumentParser(description=__doc__)
  names = lambda text: text.split(',')
  parser.add_argument('--rules', type=names, required=True)
  parser.add_argument('--environments', type=names, required=True)
  parser.add_argument('--learning_rates', type=names, default=['1e-2'])
  parser.add_argument('--rollouts', type=int, default=500)
  parser.add_argument('--updates_per_rollout', type=int, default=1)
  parser.add_argument('--seeds', type=int, default=3, help='number of agents')
  parser.add_argument('--seed', type=int, default=0, help='of the first agent')
  parser.add_argument('--output', default='runs/rule_scores.csv')
  return parser.parse_args()


def main() -> None:
  """Scores what is missing."""
  arguments = _arguments()
  # Tasks of one family share a program: the second takes 3 s instead of 30.
  compilation_cache.use_default_folder()
  path = pathlib.Path(arguments.output)
  path.parent.mkdir(parents=True, exist_ok=True)
  done = _done(path)
  updates, rollouts = arguments.updates_per_rollout, arguments.rollouts
  seeds = range(arguments.seed, arguments.seed + arguments.seeds)
  base = evaluate.get_config('general').to_dict()
  for rate, environment in itertools.product(
    arguments.learning_rates, arguments.environments
  ):
    settings = {
      **base,
      'environment': environment,
      'learning_rate': float(rate),
      'updates_per_rollout': updates,
      'seeds': arguments.seeds,
      'seed': arguments.seed,
    }
    keys = {
      name: [
        (name, environment, rate, str(updates), str(rollouts), str(seed))
        for seed in seeds
      ]
      for name in arguments.rules
    }
    missing = [name for name in keys if not {*keys[name]} <= done]
    for name, values in scores(missing, settings, rollouts):
      is_new = not path.exists()
      with path.open('a', newline='') as file:
        writer = csv.writer(file, lineterminator='\n')
        if is_new:
          writer.writerow(COLUMNS)
        writer.writerows(
          (*key, f'{score:.4f}')
          for key, score in zip(keys[name], values)
          if key not in done
        )
      print(name, environment, rate, f'{np.mean(values):.3f}', flush=True)


if __name__ == '__main__':
  main()
