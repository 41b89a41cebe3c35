"""Time and memory of discovery and training on a GPU or TPU.

  python -m benchmarks.accelerator --json=accelerator.json

takes at most nine minutes (--minutes), and writes the file anew after each
measurement:

  agent       an agent of the paper's size, configs/disco57.py: an update and
              a meta-step in each precision, states kept on the device or not
  population  16 to 1,024 agents in grid worlds, configs/meta_gridworld.py
  seeds       1 to 64 agents with a rule of Disco103's size in MinAtar's
              Breakout, configs/evaluate.py:minatar

--small makes all of them as small as possible: a CPU then takes two minutes.

Each measurement is a process of its own: its peak of memory is its own, and one
that needs more than there is does not end the others. An agent of the paper's
size sees noise in place of Atari, which needs no package and no time. TFLOP/s
count the arithmetic of the traced programs, loops multiplied out; that of a
meta-step is N updates, the outer loss and N vector-Jacobian products.
"""

from collections.abc import Callable
from collections.abc import Mapping
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from absl import app
from absl import flags
import jax
import numpy as np

from benchmarks import timing
from configs import disco57
from configs import evaluate
from configs import meta_gridworld
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.evaluation import training
from disco_rl.meta_training import agent_costs
from disco_rl.meta_training import build
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding
from launch import to_records

_MINUTES = flags.DEFINE_float('minutes', 9.0, 'For all measurements.')
_SMALL = flags.DEFINE_bool('small', False, 'The smallest sizes.')
_ONLY = flags.DEFINE_string('only', '', 'One measurement, in this process.')

Row = dict[str, Any]


class Noise(base.HostEnvironment):
  """Frames of noise in Atari's shape, rewards of one, no end of an episode."""

  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18
  )

  def __init__(self, num_environments: int):
    self.num_environments = num_environments
    shape = (num_environments, *self.spec.observation.shape)
    self._observation = np.random.default_rng(0).integers(
      0, 256, shape, np.uint8
    )

  def reset(self) -> np.ndarray:
    """See `HostEnvironment.reset`."""
    return self._observation

  def step(self, action: Any) -> types.TimeStep:
    """See `HostEnvironment.step`."""
    del action
    never: Any = np.zeros(self.num_environments, bool)
    rewards: Any = np.ones(self.num_environments, np.float32)
    return types.TimeStep(
      observation=self._observation,
      reward=rewards,
      is_terminal=never,
      is_last=never,
      mask=~never,
    )

  def close(self) -> None:
    """See `HostEnvironment.close`."""


def measure_agent(dtype: str, offload: bool) -> Row:
  """An update and a meta-step of an agent of the paper's size."""
  settings = disco57.get_config('tiny' if _SMALL.value else '').to_dict()
  settings.update(compute_dtype=dtype, offload=offload, replay_capacity=1000)
  settings.update(agents=1, cpu_devices=1)
  if _SMALL.value:
    settings.update(inner_updates=2)
  config = to_records.meta_training(settings)
  rule, rule_params = build.make_rule(config)
  inner_loop = inner_loop_lib.InnerLoop(
    config.inner_loop,
    agent_lib.make(config.agent, Noise.spec, rule),
    meta_value.MetaValue(
      config.meta_value, Noise.spec, config.agent.network.torso
    ),
  )
  estimator = meta_gradient.MetaGradient(inner_loop, config.loss, config.mode)
  group = host_group.HostGroup(
    population.GroupConfig(
      names=('noise',),
      inner_loop=inner_loop,
      optimizer=meta_update.per_agent_adam(config.meta_learning_rate, 1.0),
      chunk_size=1,
    ),
    [Noise(config.agent.num_environments)],
    estimator,
  )
  costs = agent_costs.of(estimator, rule_params)
  n = config.inner_loop.inner_updates
  of_update = costs.learn.arithmetic
  of_meta_step = (
    n * of_update
    + costs.begin.arithmetic
    + n // config.inner_loop.save_every * costs.back.arithmetic
  )
  update_seconds = time_update(inner_loop.agent, rule_params)
  members = group.init(jax.random.split(jax.random.key(0), 1), rule_params)

  def step() -> Any:
    nonlocal members
    updates, members, _ = group.step(rule_params, members)
    return updates

  step_seconds = median_seconds(step, repeats=3)
  return {
    'update_seconds': update_seconds,
    'update_tflops_per_second': of_update / update_seconds / 1e12,
    'meta_step_seconds': step_seconds,
    'meta_step_tflops_per_second': of_meta_step / step_seconds / 1e12,
    'compile_seconds': group.compile_seconds,
  }


def time_update(agent: agent_lib.Agent, rule_params: types.Params) -> float:
  """Seconds of an update on a batch of noise."""
  config = agent.config
  batch = types.empty_rollout(
    Noise.spec,
    agent.network.initial_state(config.batch_size),
    config.unroll_length,
    config.batch_size,
  )
  state = jax.jit(agent.init)(jax.random.key(0)).learner
  program = compilation.Program(
    lambda state, batch: agent.learn(rule_params, state, batch)[0]
  )
  return median_seconds(lambda: program(state, batch), repeats=5)


def measure_population(agents: int) -> Row:
  """Meta-steps of a population in grid worlds, all agents at once."""
  settings = meta_gridworld.get_config().to_dict()
  settings.update(
    environments=','.join(meta_gridworld.TASKS),
    agents=agents,
    chunk_size=agents,
    cpu_devices=1,
    held_out_environments='',
  )
  config = to_records.meta_training(settings)
  rule, rule_params = build.make_rule(config)
  groups = build.make_groups(config, rule)
  take_step = meta_step.MetaStep(config, groups, sharding.make_mesh())
  state = take_step.init(rule_params)

  def step() -> Any:
    nonlocal state
    state, _, _ = take_step(state)
    return state.rule_params

  seconds = median_seconds(step, repeats=2 if _SMALL.value else 10)
  steps = sum(
    group.config.num_members * group.config.inner_loop.steps for group in groups
  )
  return {
    'meta_steps_per_second': 1 / seconds,
    'environment_steps_per_second': steps / seconds,
    'compile_seconds': take_step.compile_seconds,
  }


def measure_seeds(seeds: int) -> Row:
  """Updates of agents side by side in MinAtar's Breakout."""
  settings = evaluate.get_config('minatar').to_dict()
  config = to_records.evaluation(to_records.of_one_run(settings))
  rule, rule_params = build.make_rule(
    to_records.meta_training(disco57.get_config().to_dict())
  )
  environment = registry.make(config.environment, 1, 0)
  agent = agent_lib.make(config.agent, environment.spec, rule)
  driver = training.make(agent, environment, seeds)
  state = driver.init(jax.random.split(jax.random.key(0), seeds))
  updates = 2 if _SMALL.value else 50

  def advance() -> Any:
    nonlocal state
    state, logs = driver.advance(rule_params, state, updates)
    return logs

  seconds = median_seconds(advance, repeats=3)
  steps = seeds * updates * config.steps_per_update
  return {
    'environment_steps_per_second': steps / seconds,
    'updates_per_second': seeds * updates / seconds,
    'compile_seconds': driver.compile_seconds,
  }


def median_seconds(function: Callable[[], Any], repeats: int) -> float:
  """Median duration of a call, after one that compiles."""
  timing.seconds(function)
  return statistics.median(timing.seconds(function) for _ in range(repeats))


def measurements() -> Mapping[str, Callable[[], Row]]:
  """By name; the most telling come first, as the time may not suffice."""
  agents = {
    f'agent, {dtype}{", offloaded" if offload else ""}': (
      lambda dtype=dtype, offload=offload: measure_agent(dtype, offload)
    )
    for offload in (False, True)
    for dtype in ('bfloat16', 'float32')
  }
  populations = {
    f'population of {n}': (lambda n=n: measure_population(n))
    for n in ((8,) if _SMALL.value else (16, 64, 256, 1024))
  }
  seeds = {
    f'{n} seeds': (lambda n=n: measure_seeds(n))
    for n in ((1,) if _SMALL.value else (1, 4, 16, 64))
  }
  return {**agents, **populations, **seeds}


def in_own_process(name: str, seconds: float) -> Row:
  """The figures of a measurement, or why there are none."""
  try:
    ended = subprocess.run(
      (
        *(sys.executable, '-m', 'benchmarks.accelerator', f'--only={name}'),
        f'--small={_SMALL.value}',
      ),
      capture_output=True,
      check=False,
      text=True,
      timeout=seconds,
    )
  except subprocess.TimeoutExpired:
    return {'failure': f'not finished in the {seconds:.0f} s that were left'}
  if ended.returncode:
    last = (ended.stderr.strip() or 'no message').splitlines()[-1]
    return {'failure': f'exit status {ended.returncode}: {last}'}
  return json.loads(ended.stdout.splitlines()[-1])


def main(argv: list[str]) -> None:
  """Prints a line for each measurement, and writes them to --json."""
  del argv
  if _ONLY.value:
    row = measurements()[_ONLY.value]()
    device = jax.local_devices()[0]
    row |= {
      'peak_gib': memory.peak_bytes() / 2**30,
      'device': device.device_kind,
    }
    print(json.dumps(row))
    return
  end = time.monotonic() + 60 * _MINUTES.value
  table: dict[str, Row] = {}
  for name in measurements():
    table[name] = in_own_process(name, max(0.0, end - time.monotonic()))
    print(f'{name}: {table[name]}', flush=True)
    timing.write(table)
  if any('failure' in row for row in table.values()):
    sys.exit(1)


if __name__ == '__main__':
  app.run(main)
