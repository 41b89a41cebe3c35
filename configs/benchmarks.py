"""Settings of the paper's evaluations, by benchmark (Extended Data Table 6).

Not a config of its own: configs/evaluate.py offers them by name. The paper
counts in environment steps and in shares of replayed trajectories; agents here
count updates and environments. Each update follows one rollout, all of which it
learns from; the other trajectories of its batch come from replay.
"""

import dataclasses

import ml_collections


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """How an agent lives in a benchmark.

  Attributes:
    environment: one of the benchmark's; any other can be chosen.
    torso: of its network.
    learning_rate: of Adam, at its highest.
    decays: whether a cosine takes it to zero.
    weight_decay: decoupled.
    steps: of the environment, of each agent.
    warm_up_steps: in which the learning rate rises.
    replay_steps: that replay holds.
    num_environments: that an agent acts in; of a batch so many trajectories are
      new.
    batch_size: trajectories.
    unroll_length: transitions of each.
    max_abs_update: bound of Adam's update.
    discount: of the rule.
    core_lstm: of its network; 0: none.
    frame_stack: frames seen at once; None: as the family has it, which is 4
      but in DMLab, where nothing is stacked.
  """

  environment: str
  torso: str
  learning_rate: float
  decays: bool
  weight_decay: float
  steps: float
  warm_up_steps: float
  replay_steps: float
  num_environments: int
  batch_size: int = 96
  unroll_length: int = 28
  max_abs_update: float = 1.0
  discount: float = 0.997
  core_lstm: int = 0
  frame_stack: int | None = None


BENCHMARKS = {
  'atari': Benchmark(
    environment='atari/breakout',
    torso='resnet',
    learning_rate=3e-4,
    decays=True,
    weight_decay=0.1,
    steps=2e8,
    warm_up_steps=5e6,
    replay_steps=1.76e6,
    num_environments=5,
  ),
  'crafter': Benchmark(
    environment='crafter',
    torso='resnet',
    learning_rate=3e-4,
    decays=False,
    weight_decay=0.3,
    steps=5e7,
    warm_up_steps=0,
    replay_steps=4e5,
    num_environments=1,
    batch_size=24,
    frame_stack=32,
  ),
  'dmlab': Benchmark(
    environment='dmlab/rooms_watermaze',
    torso='impala',
    learning_rate=5e-4,
    decays=True,
    weight_decay=0.01,
    steps=1e9,
    warm_up_steps=1e6,
    replay_steps=2.2e5,
    num_environments=10,
    unroll_length=100,
    discount=0.99,
    core_lstm=256,
  ),
  'nethack': Benchmark(
    environment='nethack/score',
    torso='nethack',
    learning_rate=1e-4,
    decays=True,
    weight_decay=0.03,
    steps=2e8,
    warm_up_steps=1e7,
    replay_steps=1.76e6,
    num_environments=5,
    max_abs_update=0.3,
  ),
  'procgen': Benchmark(
    environment='procgen/coinrun',
    torso='resnet',
    learning_rate=3e-4,
    decays=True,
    weight_decay=0.1,
    steps=2e8,
    warm_up_steps=1e6,
    replay_steps=8.8e5,
    num_environments=20,
    batch_size=192,
  ),
  'sokoban': Benchmark(
    environment='sokoban',
    torso='resnet',
    learning_rate=3e-4,
    decays=True,
    weight_decay=0.1,
    steps=2e8,
    warm_up_steps=0,
    replay_steps=8.8e5,
    num_environments=10,
  ),
}
# Stages of convolutions and dense layers; those of 'impala' as DMLab's paper
# has them, of 'resnet' as this one.
_TORSOS = {
  'impala': ((16, 32, 32), (256,)),
  'nethack': ((), (768,)),
  'resnet': ((256, 384, 384, 256), (768,)),
}


def apply(config: ml_collections.ConfigDict, benchmark: Benchmark) -> None:
  """Changes the settings of configs/evaluate.py to those of a benchmark."""
  for field in dataclasses.fields(benchmark):
    if field.name in config:
      config[field.name] = getattr(benchmark, field.name)
  config.channels, config.hidden_sizes = _TORSOS[benchmark.torso]
  config.action_model_lstm = config.action_model_head = 1024

  steps_per_update = benchmark.num_environments * benchmark.unroll_length
  updates = lambda steps: round(steps / steps_per_update)
  config.updates = updates(benchmark.steps)
  config.warm_up_updates = updates(benchmark.warm_up_steps)
  config.decay_updates = config.updates if benchmark.decays else 0
  config.log_every, config.checkpoint_every = 100, 5000

  if benchmark.frame_stack is not None:
    family = benchmark.environment.split('/')[0]
    config.preprocessing[family].frame_stack = benchmark.frame_stack

  num_new = benchmark.num_environments
  config.on_policy_share = num_new / benchmark.batch_size
  config.replay_capacity = updates(benchmark.replay_steps) * num_new
  config.seeds = 1
