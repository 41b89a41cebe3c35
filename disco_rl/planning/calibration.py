"""The rates of this machine, from the times of two programs."""

from collections.abc import Callable
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import population
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.planning import work
from disco_rl.runtime import compilation
from disco_rl.runtime import costs
from disco_rl.runtime import memory
from disco_rl.update_rules import disco

_REPEATS = 5
SPEC = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), num_actions=3
)
CONFIG = agent_lib.AgentConfig(
  agent_network.AgentNetworkConfig(torsos.TorsoConfig(hidden_sizes=(512, 512))),
  batch_size=32,
)
RULE = meta_network.MetaNetworkConfig()
# What a program costs, and its seconds.
Timed = tuple[costs.Cost, float]


def flags_of_this_machine(
  discovery: config_lib.MetaTrainingConfig,
) -> list[str]:
  """What tells launch.plan about this machine's devices.

  The rates are ones that were reached, waiting for memory included: efficiency
  is 1, and bandwidth does not limit them further.

  Args:
    discovery: of small agents, whose meta-steps are timed.

  Returns:
    The flags.

  Raises:
    ValueError: the two times contradict each other.
  """
  gib = 2**30
  rate, launch = rates_of_this_machine(discovery)
  return [
    f'--tflops={rate / 1e12:.4g}',
    '--efficiency=1',
    '--bandwidth_gbs=inf',
    f'--operation_microseconds={1e6 * launch:.4g}',
    f'--memory_gib={memory.total_bytes() / gib:.4g}',
    '--memory_fraction=1',
    f'--host_memory_gib={memory.host_bytes() / gib:.4g}',
    f'--devices={jax.local_device_count()}',
  ]


def rates_of_this_machine(
  discovery: config_lib.MetaTrainingConfig,
) -> tuple[float, float]:
  """`rates` of an update of a wide agent, and of a meta-step of `discovery`."""
  return rates(update_of(CONFIG, RULE), meta_step_of(discovery))


def rates(wide: Timed, small: Timed) -> tuple[float, float]:
  """Solves for the two unknowns of `work.seconds`.

  Args:
    wide: a program of large operations.
    small: a program of many small ones.

  Returns:
    Arithmetic a second, and seconds to start an operation.

  Raises:
    ValueError: no positive rates explain both times.
  """
  programs = (wide, small)
  counts = np.asarray([(cost.flop, cost.operations) for cost, _ in programs])
  times = np.asarray([seconds for _, seconds in programs])
  for_arithmetic, for_operation = np.linalg.solve(counts, times).tolist()
  if min(for_arithmetic, for_operation) <= 0:
    raise ValueError(
      f'The times {times[0]:.3g} and {times[1]:.3g} s of two programs of this '
      'machine contradict each other: something else keeps it busy. Try again.'
    )
  return 1 / for_arithmetic, for_operation


def update_of(
  config: agent_lib.AgentConfig, rule_network: meta_network.MetaNetworkConfig
) -> Timed:
  """Times an update of an agent."""
  rule = disco.Disco(network=rule_network)
  agent = agent_lib.make(config, SPEC, rule)
  rule_params = meta_network.init(jax.random.key(0), rule_network)
  state = jax.jit(agent.init)(jax.random.key(0)).learner
  batch = types.empty_rollout(
    SPEC,
    agent.network.initial_state(config.batch_size),
    config.unroll_length,
    config.batch_size,
  )
  program = compilation.Program(
    lambda *arguments: agent.learn(*arguments)[0]  # Without logs.
  )
  arguments = (rule_params, state, batch)
  seconds = median_seconds(lambda: program(*arguments))
  return work.cost((program, arguments)), seconds


def meta_step_of(config: config_lib.MetaTrainingConfig) -> Timed:
  """Times a meta-step of agents in JAX-native environments."""
  rule, rule_params = build.make_rule(config)
  cost, seconds = costs.Cost(), 0.0
  for group in build.make_groups(config, rule):
    cost += work.cost(group.named_calls(rule_params)['step'])
    seconds += seconds_of_group(group, rule_params)
  return cost, seconds


def seconds_of_group(
  group: population.Group, rule_params: types.Params
) -> float:
  """Times a meta-step of its members."""
  keys = jax.random.split(jax.random.key(0), group.config.num_members)
  members = group.init(keys, rule_params)

  def step() -> Any:
    nonlocal members
    results = group.step(rule_params, members)  # Donates its members.
    members = results[1]
    return results

  return median_seconds(step)


def median_seconds(
  function: Callable[[], Any], repeats: int = _REPEATS
) -> float:
  """Median duration of a call, after one that compiles."""

  def seconds() -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start

  seconds()
  return statistics.median(seconds() for _ in range(repeats))
