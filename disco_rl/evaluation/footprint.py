"""The memory and the disk that training with a fixed rule needs."""

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_collector
from disco_rl.evaluation import base
from disco_rl.evaluation import training
from disco_rl.runtime import limits
from disco_rl.runtime import memory

_CHECKPOINTS = 3  # Two are kept while another is written.


def off_device(
  agents: base.Training,
  agent: agent_lib.Agent,
  num_agents: int,
  rule_params: types.Params,
) -> limits.OffDevice:
  """Bytes of replay in the host's memory, and in the folder of the run.

  Args:
    agents: the training.
    agent: that is trained.
    num_agents: S.
    rule_params: The rule's parameters.

  Returns:
    The bytes.
  """
  (_, arguments), _ = agents.calls(rule_params)
  host, disk = 0, _CHECKPOINTS * memory.tree_bytes(arguments[1])
  if isinstance(agents, training.HostTraining):
    replay = host_collector.replay_footprint(agent)
    host += num_agents * replay.memory
    disk += num_agents * replay.disk
  return limits.OffDevice(host, disk)


def check(
  agents: base.Training,
  agent: agent_lib.Agent,
  num_agents: int,
  rule_params: types.Params,
) -> limits.OffDevice:
  """Checks that the training of agents fits into the memory of this machine.

  Args:
    agents: the training.
    agent: that is trained.
    num_agents: S.
    rule_params: The rule's parameters.

  Returns:
    What it takes in addition to devices.

  Raises:
    limits.DoesNotFitError: a device is too small.
    ValueError: the host's memory is.
  """
  needed = off_device(agents, agent, num_agents, rule_params)

  def message(agent: agent_lib.Agent, held: limits.Held, available: int) -> str:
    size = agent.config.network.torso.chunk_size
    remedies = {
      'lower seeds': num_agents > 1,
      'lower replay_capacity': not needed.host,
      'set torso_chunk_size=-1': not 0 < size <= 32,
      'lower batch_size': True,
    }
    return (
      f'Training needs {memory.gib(held.total)} on each device, of '
      f'{memory.gib(available)}: {held}. One of these may help: '
      f'{", ".join(text for text, helps in remedies.items() if helps)}.'
    )

  limits.check(
    needed.host,
    'It holds the replay of agents with environments on the host: set '
    'replay_on_disk=True, or lower replay_capacity or seeds.',
    [(agent, agents.running(rule_params))],
    message,
  )
  return needed
