"""The rate at which this machine computes updates of a small agent."""

import statistics
import time

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.planning import work
from disco_rl.runtime import compilation
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


def rate(
  config: agent_lib.AgentConfig = CONFIG,
  rule_network: meta_network.MetaNetworkConfig = RULE,
) -> float:
  """Operations a second of a device, in the updates of an agent.

  Args:
    config: of the agent.
    rule_network: of its rule.

  Returns:
    The arithmetic of an update, as `costs` counts it, over its median time.
  """
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

  def seconds() -> float:
    start = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - start

  seconds()  # Compiles.
  duration = statistics.median(seconds() for _ in range(_REPEATS))
  return work.cost((program, arguments)).flop / duration


def flags_of_this_machine() -> list[str]:
  """What tells launch.plan about this machine's devices.

  The rate is one that was reached, waiting for memory included: efficiency is
  1, and bandwidth does not limit it further.
  """
  gib = 2**30
  return [
    f'--tflops={rate() / 1e12:.4g}',
    '--efficiency=1',
    '--bandwidth_gbs=inf',
    f'--memory_gib={memory.total_bytes() / gib:.4g}',
    '--memory_fraction=1',
    f'--host_memory_gib={memory.host_bytes() / gib:.4g}',
    f'--devices={jax.local_device_count()}',
  ]
