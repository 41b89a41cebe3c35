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
size sees noise in place of Atari, which needs no package and no time. Its
arithmetic is that of `paper_agent.Program`; of a meta-step N updates, the outer
loss and N vector-Jacobian products.
"""

from collections.abc import Callable
from collections.abc import Mapping
import json
import subprocess
import sys
import time
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import paper_agent
from benchmarks import small_runs
from benchmarks import timing
from configs import disco57
from configs import evaluate
from configs import meta_gridworld
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.evaluation import training
from disco_rl.meta_training import build
from disco_rl.meta_training import host_group
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding
from launch import to_records

_MINUTES = flags.DEFINE_float('minutes', 9.0, 'For all measurements.')
_SMALL = flags.DEFINE_bool('small', False, 'The smallest sizes.')
_ONLY = flags.DEFINE_string('only', '', 'One measurement, in this process.')

Row = dict[str, Any]
_SMALLEST = {
  **small_runs.SETTINGS,
  'inner_updates': 2,
  'torso': 'mlp',
  'torso_chunk_size': 0,
}


class Noise(base.HostEnvironment):
  """The same noise in every frame, in Atari's shape; rewards of 1."""

  spec = paper_agent.ATARI

  def __init__(self, num_environments: int):
    self.num_environments = num_environments
    height, width, num_frames = self.spec.observation.shape
    frames = np.random.default_rng(0).integers(
      0, 256, (num_environments, height, width, 1), np.uint8
    )
    self._observation = np.repeat(frames, num_frames, axis=-1)

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
  settings: dict[str, Any] = {
    'compute_dtype': dtype,
    'offload': offload,
    'replay_capacity': 1000,
  }
  if _SMALL.value:
    settings |= _SMALLEST
  agent = paper_agent.make_agent(settings)
  inner_loop = agent.estimator.inner_loop
  group = host_group.HostGroup(
    population.GroupConfig(
      names=('noise',),
      inner_loop=inner_loop,
      optimizer=meta_update.per_agent_adam(1e-3, 1.0),
      chunk_size=1,
    ),
    lambda _: [Noise(inner_loop.agent.config.num_environments)],
    agent.estimator,
  )
  tflop = {
    name: make(agent).cost(group.config.mesh).flop / 1e12
    for name, make in paper_agent.PROGRAMS.items()
  }
  update_seconds = time_update(agent)
  members = group.init(
    jax.random.split(jax.random.key(0), 1), agent.rule_params
  )

  def step() -> Any:
    nonlocal members
    updates, members, _ = group.step(agent.rule_params, members)
    return updates

  step_seconds = timing.median_seconds(step, repeats=3)
  n = inner_loop.config.inner_updates
  in_step = n * (tflop['update'] + tflop['vjp']) + tflop['validation']
  return {
    'update_seconds': update_seconds,
    'update_tflops_per_second': tflop['update'] / update_seconds,
    'meta_step_seconds': step_seconds,
    'meta_step_tflops_per_second': in_step / step_seconds,
    'compile_seconds': group.compile_seconds,
  }


def time_update(agent: paper_agent.Agent) -> float:
  """Seconds of an update on a batch of zeros."""
  batch = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), agent.update.batches
  )
  learning = agent.estimator.inner_loop.agent
  state = jax.jit(learning.init)(jax.random.key(0)).learner
  program = compilation.Program(
    lambda state, batch: learning.learn(agent.rule_params, state, batch)[0]
  )
  return timing.median_seconds(lambda: program(state, batch), repeats=5)


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
  if _SMALL.value:
    settings |= small_runs.SETTINGS
  config = to_records.meta_training(settings)
  rule, rule_params = build.make_rule(config)
  groups = build.make_groups(config, rule)
  take_step = meta_step.MetaStep(config, groups, sharding.make_mesh())
  state = take_step.init(rule_params)

  def step() -> Any:
    nonlocal state
    state, _, _ = take_step(state)
    return state.rule_params

  seconds = timing.median_seconds(step, repeats=2 if _SMALL.value else 10)
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
  if _SMALL.value:
    settings.update(hidden_sizes=(8,), batch_size=16)
  config = to_records.evaluation(settings)
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

  seconds = timing.median_seconds(advance, repeats=3)
  steps = seeds * updates * agent.steps_per_update
  return {
    'environment_steps_per_second': steps / seconds,
    'updates_per_second': seeds * updates / seconds,
    'compile_seconds': driver.compile_seconds,
  }


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
