"""Settings of the paper's evaluations, by benchmark (Extended Data Table 6).

This is not a config itself; configs/evaluate.py makes the settings available by
name. The paper specifies environment steps, which are frames in Atari and DMLab
(four per action), and fractions of replayed trajectories. The settings here
specify updates and environments instead. The updates after a rollout learn from
each of its trajectories once; the others of their batches are from replay.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The training of a benchmark; the defaults hold for most benchmarks."""

  environment: str  # An example; any other can be chosen.
  replay_steps: float  # Actions in replay.
  num_environments: int  # The number of new trajectories per rollout.
  updates_per_rollout: int = 1
  seeds: int = 2
  torso: str = 'resnet'
  stride: int = 2  # For each convolutional stage.
  learning_rate: float = 3e-4  # The maximum, between warm-up and decay.
  decays: bool = True  # Whether a cosine decays the learning rate to zero.
  weight_decay: float = 0.1
  steps: float = 2e8  # Environment steps of an agent.
  action_repeat: int = 1  # Environment steps per action.
  warm_up_steps: float = 0  # Steps in which the learning rate rises.
  batch_size: int = 96
  unroll_length: int = 28
  max_abs_update: float = 1.0
  discount: float = 0.997
  core_lstm: int = 0
  frame_stack: int | None = None  # None: the default of the family.
  has_large_scores: bool = False  # Whether scores reach tens of thousands.


BENCHMARKS = {
  'atari': Benchmark(
    environment='atari/breakout',
    replay_steps=1.76e6,
    num_environments=5,
    warm_up_steps=5e6,
    action_repeat=4,
    has_large_scores=True,
  ),
  'crafter': Benchmark(
    environment='crafter',
    seeds=3,
    replay_steps=4e5,
    num_environments=1,
    # 95 of 96 trajectories are replayed: 0.99 in the paper.
    updates_per_rollout=4,
    decays=False,
    weight_decay=0.3,
    steps=5e7,
    batch_size=24,
    frame_stack=32,
  ),
  'dmlab': Benchmark(
    environment='dmlab/rooms_watermaze',
    replay_steps=2.2e5,
    num_environments=10,
    torso='impala',
    learning_rate=5e-4,
    weight_decay=0.01,
    steps=1e9,
    warm_up_steps=1e6,
    action_repeat=4,
    unroll_length=99,
    discount=0.99,
    core_lstm=256,
  ),
  'nethack': Benchmark(
    environment='nethack/challenge',
    seeds=3,
    replay_steps=1.76e6,
    num_environments=5,
    torso='nethack',
    learning_rate=1e-4,
    weight_decay=0.03,
    warm_up_steps=1e7,  # Out of 2e8 (Table 6); Fig. 2e shows up to 2e9.
    max_abs_update=0.3,
    has_large_scores=True,
  ),
  'procgen': Benchmark(
    environment='procgen/coinrun',
    replay_steps=8.8e5,
    num_environments=20,
    warm_up_steps=1e6,
    batch_size=192,
  ),
  'sokoban': Benchmark(
    environment='sokoban',
    replay_steps=8.8e5,
    num_environments=10,
    seeds=5,
    stride=1,  # A stride of 2 would leave 1 x 1 cells.
  ),
}
# Settings of Disco103 and its optimizer; other rules have their own.
_OF_DISCO103 = ('learning_rate', 'weight_decay', 'max_abs_update', 'discount')
# What baselines need where scores are large; the bins of others reach as far.
_BASELINES = ('actor_critic', 'policy_gradient', 'ppo')
_OF_LARGE_SCORES = {'num_bins': 601, 'max_abs_value': 300.0}
# Torso -> convolutional stages and dense layers. Those of 'impala' are from the
# IMPALA paper, and those of 'resnet' are from the DiscoRL paper.
_TORSOS = {
  'impala': ((16, 32, 32), (256,)),
  'nethack': ((), (768,)),
  'resnet': ((256, 384, 384, 256), (768,)),
}


def settings(name: str, until: float | None = None) -> dict[str, Any]:
  """Returns the changes of configs/evaluate.py for a benchmark.

  Args:
    name: The name of the benchmark.
    until: The environment steps at which training ends before the paper's; the
      learning rate decays as if it went on, so that the curve is the same.
  """
  benchmark = BENCHMARKS[name]
  number, repeats = benchmark.num_environments, benchmark.updates_per_rollout
  rollouts = lambda actions: round(actions / (number * benchmark.unroll_length))
  updates_in = lambda steps: repeats * rollouts(steps / benchmark.action_repeat)
  channels, hidden_sizes = _TORSOS[benchmark.torso]
  changes = {
    **dataclasses.asdict(benchmark),
    'by_rule': {
      'disco103': {
        'warm_up_updates': updates_in(benchmark.warm_up_steps),
        'decay_updates': updates_in(benchmark.steps) if benchmark.decays else 0,
        **{name: getattr(benchmark, name) for name in _OF_DISCO103},
      },
      **dict.fromkeys(
        _BASELINES if benchmark.has_large_scores else (), _OF_LARGE_SCORES
      ),
    },
    'sizes': 'paper',
    'updates': updates_in(until or benchmark.steps),
    'log_every': 100,
    'checkpoint_every': 5000,
    'on_policy_share': number / (repeats * benchmark.batch_size),
    'replay_capacity': rollouts(benchmark.replay_steps) * number,
    'channels': channels,
    'hidden_sizes': hidden_sizes,
    'torso_chunk_size': -1,  # The most that fit into memory.
    'action_model_lstm': 1024,
    'action_model_head': 1024,
  }
  for field in (
    'action_repeat',
    'decays',
    'steps',
    'warm_up_steps',
    'replay_steps',
    'has_large_scores',
    *_OF_DISCO103,
  ):
    del changes[field]
  frame_stack = changes.pop('frame_stack')
  if frame_stack is not None:
    changes['preprocessing'] = {name: {'frame_stack': frame_stack}}
  return changes
