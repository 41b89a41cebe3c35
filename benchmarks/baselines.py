"""Measures PPO and actor-critic beside Stable-Baselines3's PPO and A2C.

  python -m benchmarks.baselines --rules=ppo,actor_critic --tasks=CartPole-v1
  python benchmarks/baselines.py --library=stable_baselines3 --rules=PPO,A2C \
    --tasks=CartPole-v1

Both have their default settings, and learn in the same environment of Gymnasium
with equally many environment steps. A row of --output is one agent after some
steps, to which up to a rollout is added:

  return  The mean return of its last 100 episodes of training.
  greedy  The mean return of 20 further episodes with the most probable actions;
          only after the last step.

Agents that are in the file already are not trained again. The second command
imports nothing of this package, and so runs where Stable-Baselines3 is
installed: `pip install stable-baselines3 box2d pygame absl-py`. It trains one
agent after the other; the first trains all agents of a rule side by side.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import csv
import itertools
import os
import pathlib
from typing import NamedTuple

from absl import app
from absl import flags
import numpy as np

_LIBRARY = flags.DEFINE_enum(
  'library',
  'disco_rl',
  ['disco_rl', 'stable_baselines3'],
  'Whose agents to train.',
)
_RULES = flags.DEFINE_list('rules', [], 'The rules or algorithms, by name.')
_TASKS = flags.DEFINE_list('tasks', [], 'The tasks; see TASKS.')
_AGENTS = flags.DEFINE_integer('agents', 5, 'The number of agents.', 1)
_WORKDIR = flags.DEFINE_string(
  'workdir', 'runs/baselines', 'The folder of the runs of disco_rl.'
)
_OUTPUT = flags.DEFINE_string(
  'output', 'docs/data/baselines.csv', 'The file to which rows are added.'
)

# The numbers of environment steps after which returns are recorded; each is a
# multiple of the first.
TASKS: Mapping[str, Sequence[int]] = {
  'CartPole-v1': (50_000, 100_000),
  'Acrobot-v1': (50_000, 100_000),
  'LunarLander-v3': (100_000, 200_000, 300_000),
}
GREEDY_EPISODES = 20
COLUMNS = (
  *('library', 'version', 'rule', 'environment', 'agent'),
  *('environment_steps', 'return', 'greedy'),
)


class Score(NamedTuple):
  """The returns of an agent after some environment steps."""

  environment_steps: int
  training: float
  greedy: float | None


def disco_rl(
  rule: str, task: str, agents: int
) -> tuple[str, list[list[Score]]]:
  """Trains agents of this package with its defaults.

  Returns:
    Its version, and the scores of each agent.
  """
  # Imported late: the other library is measured where this one is missing.
  import disco_rl
  from disco_rl.training import config as training_config
  from disco_rl.training import learning_curves
  from disco_rl.training import runner

  settings = {'environment': f'gymnasium/{task}', 'rule': rule, 'seeds': agents}
  first, *_, last = TASKS[task]
  agent = training_config.config_of(settings, rollouts=1).agent
  every = -(-first // (agent.num_environments * agent.unroll_length))
  config, loaded = training_config.resolve(
    {**settings, 'log_every': every}, rollouts=last // first * every
  )
  folder = pathlib.Path(_WORKDIR.value) / f'{task}_{rule}'
  run = runner.TrainingRun(config, loaded)
  run.run(folder)
  run.close()
  steps, returns = learning_curves.read_curve(folder / 'metrics.csv')
  scores = []
  for i in range(agents):
    policy = disco_rl.load_policy(folder, seed=i)
    played = policy.evaluate(GREEDY_EPISODES, greedy=True, seed=10_000 + i)
    # There are more rows, where checkpoints were written.
    points = np.searchsorted(steps, TASKS[task])
    trained = [(int(steps[j]), float(returns[i, j])) for j in points]
    scores.append(
      [
        *(Score(*x, None) for x in trained[:-1]),
        Score(*trained[-1], played.mean),
      ]
    )
  return disco_rl.__version__, scores


def stable_baselines3(
  rule: str, task: str, agent: int
) -> tuple[str, list[Score]]:
  """Trains an agent of Stable-Baselines3 with its defaults.

  Returns:
    Its version, and the scores.
  """
  os.environ['OMP_NUM_THREADS'] = '1'
  import gymnasium
  import stable_baselines3 as sb3
  from stable_baselines3.common import callbacks
  from stable_baselines3.common import evaluation
  from stable_baselines3.common import monitor

  scores = []

  class Record(callbacks.BaseCallback):
    """Records the mean of the last 100 returns after some steps."""

    def _on_step(self) -> bool:
      if self.num_timesteps in TASKS[task][:-1]:
        scores.append(Score(self.num_timesteps, recent(), None))
      return True

  def recent() -> float:
    return float(np.mean(environment.get_episode_rewards()[-100:]))

  environment = monitor.Monitor(gymnasium.make(task))
  algorithm = getattr(sb3, rule)
  model = algorithm('MlpPolicy', environment, seed=agent, device='cpu')
  model.learn(TASKS[task][-1], callback=Record())
  evaluated = monitor.Monitor(gymnasium.make(task))
  evaluated.reset(seed=10_000 + agent)
  greedy, _ = evaluation.evaluate_policy(model, evaluated, GREEDY_EPISODES)
  scores.append(Score(model.num_timesteps, recent(), float(np.mean(greedy))))
  return sb3.__version__, scores


def _done(path: pathlib.Path) -> set[tuple[str, ...]]:
  """Returns the agents of a file: library, rule, task and agent."""
  if not path.exists():
    return set()
  keys = ('library', 'rule', 'environment', 'agent')
  with path.open(newline='') as file:
    return {tuple(row[x] for x in keys) for row in csv.DictReader(file)}


def _append(
  path: pathlib.Path, agent: Sequence[object], scores: Sequence[Score]
) -> None:
  """Adds the rows of an agent to a file, which gets a first line if new."""
  path.parent.mkdir(parents=True, exist_ok=True)
  rows: list[Sequence[object]] = [] if path.exists() else [COLUMNS]
  for steps, training, greedy in scores:
    shown = '' if greedy is None else f'{greedy:.2f}'
    rows.append((*agent, steps, f'{training:.2f}', shown))
  with path.open('a', newline='') as file:
    csv.writer(file, lineterminator='\n').writerows(rows)
  print(*rows[-1], flush=True)


def main(argv: Sequence[str]) -> None:
  """Trains the agents that are missing."""
  del argv
  path, library = pathlib.Path(_OUTPUT.value), _LIBRARY.value
  for task, rule in itertools.product(_TASKS.value, _RULES.value):
    done = {int(x[-1]) for x in _done(path) if x[:-1] == (library, rule, task)}
    missing = [i for i in range(_AGENTS.value) if i not in done]
    if library == 'disco_rl' and missing:
      version, scores = disco_rl(rule, task, _AGENTS.value)
      for i in missing:
        _append(path, (library, version, rule, task, i), scores[i])
    elif library != 'disco_rl':
      for i in missing:
        version, of_agent = stable_baselines3(rule, task, i)
        _append(path, (library, version, rule, task, i), of_agent)


if __name__ == '__main__':
  app.run(main)
