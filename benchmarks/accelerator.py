"""Measures on an accelerator what two CPU cores cannot, one part at a time.

  python -m benchmarks.accelerator --parts=dtypes,chunks --json=day.json
  python -m benchmarks.accelerator --parts=runs,tests --workdir=runs/day
  python -m benchmarks.accelerator --size=tiny --json=day.json

  dtypes  float32 and bfloat16 at the size of configs/disco57.py: seconds and
          memory of the N updates of an agent and of its meta-gradient, and the
          cosine of the two meta-gradients, from the same random batches
  chunks  seconds of a meta-step of configs/general.py:untrained, with more
          agents computed at a time
  runs    the quick start and configs/general.py:untrained on the accelerator
          and on CPUs, by turns
  tests   the test suite

Parts that end early keep what they have measured: results are printed, and
written to --json after each. --size=tiny checks on two CPU cores that all parts
run, the last with a single file of tests; its figures mean nothing.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import small_runs
from benchmarks import timing
from configs import disco57
from configs import general
from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import resets

_PARTS = flags.DEFINE_list('parts', ['dtypes', 'chunks'], 'Parts, in order.')
_SIZE = flags.DEFINE_enum(
  'size', 'full', ['full', 'tiny'], 'The size of the parts.'
)
_SEEDS = flags.DEFINE_integer('seeds', 2, 'Turns of the part runs.')
_WORKDIR = flags.DEFINE_string('workdir', 'runs/day', 'Folder of its runs.')

_ATARI = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18, frame_stack=4
)

Row = dict[str, Any]


def dtypes() -> Iterator[Row]:
  """Compares the meta-gradients of an agent in float32 and bfloat16."""
  gradients = {}
  for name in ('float32', 'bfloat16'):
    row, gradients[name] = _meta_gradient(name)
    yield row
  whole, half = (
    np.concatenate([np.ravel(x) for x in jax.tree.leaves(gradients[name])])
    for name in ('float32', 'bfloat16')
  )
  norms = np.linalg.norm(whole), np.linalg.norm(half)
  yield {
    'cosine': float(whole @ half / np.prod(norms)),
    'norm_of_bfloat16_over_float32': float(norms[1] / norms[0]),
  }


def _meta_gradient(dtype: str) -> tuple[Row, types.Params]:
  """Computes one meta-gradient, with the same numbers in every type."""
  is_tiny = _SIZE.value == 'tiny'
  settings = disco57.get_config('tiny' if is_tiny else '').to_dict()
  settings.update(compute_dtype=dtype, torso_chunk_size=0 if is_tiny else 512)
  if is_tiny:
    settings.update(inner_updates=2)
  config = meta_trainer.config_of(settings)
  rule, rule_params = build.make_rule(config)
  inner_loop = build.make_inner_loop(config, rule, _ATARI)
  estimator = meta_gradient.MetaGradient(
    inner_problem.AgentProblem(inner_loop, config.loss),
    config.estimators.differentiation,
  )
  updates = config.inner_loop.inner_updates
  member = jax.jit(lambda key: resets.initial_member(inner_loop, key))(
    jax.random.key(0)
  )
  batches = [_batch(i, config.agent.batch_size, config) for i in range(updates)]
  validation = _batch(
    updates, config.inner_loop.validation_trajectories, config
  )

  @jax.jit
  def compute(
    rule_params: types.Params,
    member: inner_loop_lib.Newborn,
    batches: types.Rollout,
    validation: types.Rollout,
  ) -> types.Params:
    def learn(
      member: inner_loop_lib.Newborn, batch: types.Rollout
    ) -> tuple[inner_loop_lib.Newborn, inner_loop_lib.Trajectory]:
      member, trajectory, _ = inner_loop.learn(rule_params, member, batch)
      return member, trajectory

    member, trajectory = jax.lax.scan(learn, member, batches)
    gradient, _, _ = estimator.differentiate(
      rule_params,
      member,
      inner_loop.split_into_segments(trajectory),
      validation,
    )
    return gradient

  stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
  arguments = rule_params, member, stacked, validation
  compiled = compute.lower(*arguments).compile()
  usage: Any = compiled.memory_analysis()
  row = {
    'dtype': dtype,
    'seconds': timing.median_seconds(lambda: compiled(*arguments), 3),
    'temporaries_gib': usage.temp_size_in_bytes / 2**30,
    'arguments_gib': usage.argument_size_in_bytes / 2**30,
  }
  return row, jax.device_get(compiled(*arguments))


def _batch(seed: int, size: int, config: Any) -> types.Rollout:
  """Draws random trajectories [T or T+1, size, ...], all of them real."""
  length = config.agent.unroll_length
  keys = jax.random.split(jax.random.key(seed), 5)
  steps = length + 1, size
  logits = jax.random.normal(keys[1], (*steps, _ATARI.num_actions))
  return types.Rollout(
    observation=jax.random.bits(
      keys[0], (*steps, *_ATARI.observation.shape), jnp.uint8
    ),
    action=jax.random.categorical(keys[2], logits).astype(jnp.int32),
    logits=logits,
    reward=jax.random.normal(keys[3], (length, size)),
    is_terminal=jax.random.uniform(keys[4], (length, size)) < 0.02,
    mask=jnp.ones((length, size), bool),
  )


def chunks() -> Iterator[Row]:
  """Times a meta-step with 1, 4, 16 and 32 agents computed at a time."""
  is_tiny = _SIZE.value == 'tiny'
  settings = general.get_config('untrained').to_dict()
  settings.update(cpu_devices=1, held_out_environments='')
  if is_tiny:
    settings.update(small_runs.SETTINGS, **small_runs.SMALL_RULE, agents=4)
    settings.update(batch_size=2, on_policy_share=1.0, inner_updates=1)
  else:
    settings.update(environments='random_grid', agents=64)
  for size in (1, 2) if is_tiny else (1, 4, 16, 32):
    config = meta_trainer.config_of({**settings, 'chunk_size': size})
    rule, rule_params = build.make_rule(config)
    (group,) = build.make_groups(config, rule)
    keys = jax.random.split(jax.random.key(0), config.agents)
    members = group.init(keys, rule_params)
    start = time.perf_counter()
    _, members, _ = jax.block_until_ready(group.step(rule_params, members))
    first, seconds = time.perf_counter() - start, []
    for _ in range(5):
      start = time.perf_counter()
      _, members, _ = jax.block_until_ready(group.step(rule_params, members))
      seconds.append(time.perf_counter() - start)
    yield {
      'chunk_size': size,
      'agents': config.agents,
      'seconds': float(np.median(seconds)),
      'first_seconds': first,
    }


def runs() -> Iterator[Row]:
  """Runs discoveries on the accelerator and on CPUs, by turns."""
  changes: list[str] = []
  if _SIZE.value == 'tiny':
    tiny = {**small_runs.SETTINGS, **small_runs.SMALL_RULE, 'agents': 2}
    tiny |= {'meta_steps': 2, 'inner_updates': 2}
    changes = [f'--config.{name}={value}' for name, value in tiny.items()]
  for seed in range(_SEEDS.value):
    for config in ('quickstart', 'general:untrained'):
      for platform in ('', 'cpu'):
        name = f'{config.replace(":", "_")}_{platform or "accelerator"}_{seed}'
        workdir = pathlib.Path(_WORKDIR.value) / name
        seconds = _run(
          {'JAX_PLATFORMS': platform} if platform else {},
          *('-m', 'launch.meta_train', f'--config={config}'),
          *(*changes, f'--config.seed={seed}', f'--workdir={workdir}'),
        )
        yield {'run': name, 'seconds': seconds, 'summary': str(workdir)}


def tests() -> Iterator[Row]:
  """Runs the test suite, in one process because it has one accelerator."""
  chosen = ['tests/maths/masked_test.py'] if _SIZE.value == 'tiny' else []
  options = '-q', '-x', '-p', 'no:cacheprovider'
  seconds = _run({}, '-m', 'pytest', *options, *chosen)
  yield {'tests': 'passed', 'seconds': seconds}


def _run(environment: dict[str, str], *arguments: str) -> float:
  """Runs Python; returns its seconds, and raises if it fails."""
  start = time.perf_counter()
  subprocess.run(
    (sys.executable, *arguments), check=True, env={**os.environ, **environment}
  )
  return time.perf_counter() - start


PARTS = {'dtypes': dtypes, 'chunks': chunks, 'runs': runs, 'tests': tests}


def main(argv: Sequence[str]) -> None:
  """Prints a line for each measurement, and writes them to --json."""
  del argv
  table: dict[str, list[Row]] = {}
  if _PARTS.value[0] in ('dtypes', 'chunks'):
    print(jax.devices()[0].device_kind, flush=True)
  for name in _PARTS.value:
    for row in PARTS[name]():
      table.setdefault(name, []).append(row)
      print(name, row, flush=True)
      timing.write(table)


if __name__ == '__main__':
  app.run(main)
