"""What training with a fixed rule takes on a number of devices."""

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import footprint
from disco_rl.evaluation import runner
from disco_rl.evaluation import training
from disco_rl.planning import cluster as cluster_lib
from disco_rl.planning import plan
from disco_rl.planning import work
from disco_rl.runtime import limits
from disco_rl.runtime import sharding
from disco_rl.update_rules import registry as rule_registry


def make(
  config: runner.EvaluationConfig, cluster: cluster_lib.Cluster
) -> plan.Plan:
  """Plans a run; compiles for CPUs what might not fit, and runs nothing.

  Args:
    config: of the run. A torso's automatic chunks are chosen.
    cluster: devices of one machine, as many as divide the agents are used.

  Returns:
    The plan.

  Raises:
    ValueError: there are several machines.
    limits.DoesNotFitError: it does not fit into the memory.
  """
  if cluster.machines > 1:
    raise ValueError(
      f'launch.evaluate uses one machine, and not {cluster.machines}: lower '
      'devices, or raise devices_per_machine.'
    )
  rule, rule_params = rule_registry.load(config.rule, **config.rule_settings)
  environment = environment_registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  if isinstance(environment, base.HostEnvironment):
    environment.close()
  devices = max(
    n for n in range(1, cluster.devices + 1) if config.seeds % n == 0
  )
  row = jax.sharding.Mesh(
    np.array(jax.local_devices(backend='cpu')[:1]).reshape(1, 1),
    (sharding.AGENTS, sharding.BATCH),
  )

  def attempt(agent_config: agent_lib.AgentConfig) -> plan.Plan:
    agent = agent_lib.make(agent_config, environment.spec, rule)
    agents = training.make(agent, environment, config.seeds // devices, row)
    return _plan(config, agents, agent, devices, rule_params, cluster)

  return limits.first_that_fits(config.agent.chunkings(), attempt)


def _plan(
  config: runner.EvaluationConfig,
  agents: training.training_base.Training,
  agent: agent_lib.Agent,
  devices: int,
  rule_params: types.Params,
  cluster: cluster_lib.Cluster,
) -> plan.Plan:
  """The plan of a run, from the agents of one of its devices."""
  seeds = config.seeds // devices
  needed = footprint.off_device(agents, agent, seeds, rule_params)
  cluster.check_host(devices * needed.host)
  memory = max(
    plan.checked(program, cluster) for program in agents.running(rule_params)
  )
  learn, _ = agents.calls(rule_params)
  cost = work.cost(learn)
  seconds = work.seconds(cost, cluster, agent.config.network.compute_dtype)
  steps = config.seeds * agent.config.steps_per_update
  if isinstance(agents, training.HostTraining):
    # All agents share the machine's processors.
    seconds = seconds.beside(steps / cluster.steps_per_second)
  return plan.Plan(
    settings={
      'torso_chunk_size': agent.config.network.torso.chunk_size,
      'devices': devices,
    },
    step='update',
    steps=config.updates,
    device_bytes=memory,
    host_bytes=devices * needed.host,
    disk_bytes=devices * needed.disk,
    flop=devices * cost.flop,
    environment_steps=steps,
    seconds=seconds,
  )
