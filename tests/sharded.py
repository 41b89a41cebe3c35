"""Discovers with a small population on eight devices in several layouts.

The population has seven agents, padded to eight. Arguments are layouts such as
4x2, agents x batch. For each, the program prints as JSON how far the rule is
from that of a single device after some meta-steps in double precision, and the
collectives of a meta-step's programs. The torso computes a few observations at
a time; on the single device, all. The layout `groups` has two groups, of four
agents and of two, on rows of their own.
"""

import collections
import dataclasses
import functools
import json
import re
import sys
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import small_runs
from configs import quickstart
from disco_rl import types
from disco_rl.environments.jax_native import catch
from disco_rl.meta_training import build
from disco_rl.meta_training import device_group
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.runtime import compilation
from disco_rl.runtime import compilation_cache
from disco_rl.runtime import sharding

META_STEPS = 5
SETTINGS = {
  **small_runs.SETTINGS,
  **small_runs.SMALL_RULE,
  'agents': 8,
  'budgets': (400,),
  'chunk_size': 2,
  'checkpoint_every': 3,
  'inner_updates': 2,
  'held_out_environments': '',
}
FLAGS = (
  '--config=configs/quickstart.py',
  *(f'--config.{name}={value}' for name, value in SETTINGS.items()),
)
# Batches that can be divided among up to eight devices.
DIVISIBLE = {
  'batch_size': 8,
  'num_environments': 4,
  'validation_trajectories': 8,
}
# Four agents and two.
GROUPS = {
  'environments': 'catch/4x3,catch/4x3,catch/3x3',
  'agents': 6,
  'budgets': (100_000,),
  'rule_meta_rnn_size': 0,
}
_COLLECTIVES = re.compile(
  r' (all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)'
  r'(?:-start)?\('
)
_NAMED_GROUPS = re.compile(r"replica_groups=mesh\[[^]]*\] {'(\w+)'}")
_GROUPS: Any = re.compile(r'replica_groups=({{.*?}})')


@types.record
class PreciseCatch(catch.Catch):
  """Catch with rewards in double precision."""

  def step(self, *args: Any) -> Any:
    """Implements `Catch.step`."""
    state, timestep = super().step(*args)
    reward = timestep.reward.astype(jnp.float64)
    return state, dataclasses.replace(timestep, reward=reward)


def precise(tree: Any) -> Any:
  """Converts floats to double precision."""
  is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
  return jax.tree.map(
    lambda x: x.astype(jnp.float64) if is_float(x) else x, tree
  )


def collectives(
  program: jax.stages.Compiled, mesh: jax.sharding.Mesh
) -> dict[str, int]:
  """Counts a program's collectives by their kind and axis."""
  lines = [x for x in program.as_text().splitlines() if _COLLECTIVES.search(x)]
  return collections.Counter(
    f'{_COLLECTIVES.findall(line)[0]} over {axis_of(line, mesh)}'
    for line in lines
  )


def axis_of(line: str, mesh: jax.sharding.Mesh) -> str:
  """Returns the axis of the mesh over which a collective communicates."""
  if named := _NAMED_GROUPS.search(line):
    return named[1]
  # JAX 0.10 lists the devices of each group.
  text = _GROUPS.search(line)[1]
  groups = json.loads(text.translate(str.maketrans('{}', '[]')))
  rows = np.arange(mesh.size).reshape(mesh.devices.shape)
  axes = {sharding.BATCH: rows.tolist(), sharding.AGENTS: rows.T.tolist()}
  return next((axis for axis in axes if axes[axis] == groups), str(groups))


def discover(
  agents: int, batch: int, torso_chunk_size: int = 0
) -> tuple[np.ndarray, list[dict[str, int]]]:
  """Returns the rule after some meta-steps, and collectives of programs."""
  settings = {**quickstart.get_config().to_dict(), **SETTINGS, **DIVISIBLE}
  settings |= {'agents': 7, 'group_multiple': 8}
  settings['torso_chunk_size'] = torso_chunk_size
  config = meta_trainer.config_of(settings)
  rule, params = build.make_rule(config)
  (group,) = build.make_groups(config, rule)
  assert isinstance(group, device_group.DeviceGroup)
  devices = np.array(jax.devices()[: agents * batch]).reshape(agents, batch)
  mesh = jax.sharding.Mesh(devices, (sharding.AGENTS, sharding.BATCH))
  group = device_group.DeviceGroup(
    dataclasses.replace(group.config, mesh=mesh),
    8 * [PreciseCatch(4, 3)],
    group.estimator,
  )
  params = sharding.to_devices(precise(params), mesh, sharding.REPLICATED)
  members = group.init(jax.random.split(jax.random.key(0), 8), params)
  members = dataclasses.replace(
    members,
    learner=precise(members.learner),
    meta_value=precise(members.meta_value),
  )
  apply_mean = compilation.Program(
    lambda params, updates: meta_update.apply_mean(
      optax.identity(), params, optax.EmptyState(), [updates], 7, mesh
    )
  )
  for _ in range(META_STEPS):
    updates, members, _ = group.step(params, members)
    # Simulated devices have too few threads for two concurrent programs.
    jax.block_until_ready(updates)
    params, *_ = jax.block_until_ready(apply_mean(params, updates))
  step, arguments = group.step_calls(params, members)['step']
  programs = step.compile(*arguments), apply_mean.compile(params, updates)
  return np.asarray(ravel_pytree(params)[0]), [
    collectives(each, mesh) for each in programs
  ]


def discover_groups(rows: int) -> tuple[np.ndarray, list[dict[str, int]]]:
  """Returns the same for two groups, by whole meta-steps."""
  settings = {**quickstart.get_config().to_dict(), **SETTINGS, **GROUPS}
  config = meta_trainer.config_of(settings)
  rule, params = build.make_rule(config)
  devices = np.array(jax.devices()[:rows])[:, None]
  mesh = jax.sharding.Mesh(devices, (sharding.AGENTS, sharding.BATCH))
  groups = [
    device_group.DeviceGroup(
      group.config,
      group.config.num_members * [PreciseCatch(*size)],
      group.estimator,
    )
    for group, size in zip(
      build.make_groups(config, rule, mesh), ((4, 3), (3, 3))
    )
  ]
  of_groups = [group.config.mesh.shape[sharding.AGENTS] for group in groups]
  assert of_groups == ([4, 2] if rows == 8 else [1, 1]), of_groups
  step = meta_step.MetaStep(config, groups, mesh)
  state = step.init(
    sharding.to_devices(precise(params), mesh, sharding.REPLICATED)
  )
  members = [
    dataclasses.replace(
      each,
      learner=precise(each.learner),
      meta_value=precise(each.meta_value),
    )
    for each in state.members
  ]
  state = dataclasses.replace(state, members=members)
  for _ in range(META_STEPS):
    state, _, _ = step(state)
  programs = [group._step.compile() for group in groups]
  found = sum(
    (
      collections.Counter(collectives(program, group.config.mesh))
      for program, group in zip(programs, groups)
    ),
    collections.Counter(),
  )
  of_mean = collectives(step._apply_mean.compile(), mesh)
  return np.asarray(ravel_pytree(state.rule_params)[0]), [found, of_mean]


def main() -> None:
  compilation_cache.collect_garbage_rarely()
  jax.config.update('jax_enable_x64', True)
  on_one = functools.cache(lambda: discover(1, 1))
  results = {}
  for layout in sys.argv[1:]:
    if layout == 'groups':
      expected, _ = discover_groups(1)
      params, found = discover_groups(8)
    else:
      expected, _ = on_one()
      # A batch has 8 x 7 observations, divided among devices.
      sizes = map(int, layout.split('x'))
      params, found = discover(*sizes, torso_chunk_size=5)
    error = np.linalg.norm(params - expected) / np.linalg.norm(expected)
    results[layout] = {'error': float(error), 'collectives': found}
  print(json.dumps(results))


if __name__ == '__main__':
  main()
