"""What the training of agents needs of devices, a machine and the disk.

Runs compare it with what there is before they compile anything, and
`disco-rl plan` estimates their time from it. Updates do not use it.
"""

import functools

from disco_rl import types
from disco_rl.agent import host_collector
from disco_rl.agent import host_replay
from disco_rl.networks import torsos
from disco_rl.planning import fitting
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding
from disco_rl.training import base
from disco_rl.training import parallel

_CHECKPOINTS = 3  # Two are kept while another is written.


def needs(training: base.Training, rule_params: types.Params) -> fitting.Needs:
  """Returns the memory and disk that training needs, from array shapes."""
  agent, number = training.agent, training.num_agents
  learn, initial = training.calls(rule_params)
  mesh = fitting.row_of(training.mesh)

  @functools.cache
  def alone() -> list[compilation.Call]:
    if mesh == training.mesh:
      return [learn, initial]
    of_row = number // training.mesh.shape[sharding.AGENTS]
    on_row = type(training)(agent, training.environment, of_row, mesh)
    return on_row.calls(rule_params)

  # Outside of the state.
  replay, other_bytes = host_replay.Footprint(0, 0), 0
  # Acting is part of the program.
  schedule = fitting.Schedule(1 / agent.config.updates_per_rollout)
  if isinstance(training, parallel.HostTraining):
    replay = host_collector.replay_footprint(agent)
    other_bytes = _waiting_bytes(training, learn)
    acting = number * agent.config.actions_per_update
    schedule = fitting.Schedule(1, actions_during=acting)
  size = agent.config.network.torso.chunk_size
  remedies = {
    'lower seeds': number > 1,
    'lower replay_capacity': not replay.disk,
    'set torso_chunk_size=-1': not 0 < size <= torsos.CHUNK_SIZES[-1],
    'lower batch_size': True,
  }
  load = functools.partial(
    fitting.Load,
    remedies=[text for text, helps in remedies.items() if helps],
  )
  _, (_, train_state, *_) = learn
  return fitting.Needs(
    'Training',
    [
      load('initial', initial, lambda: alone()[1]),
      load(
        'learn',
        learn,
        lambda: alone()[0],
        other_bytes=other_bytes,
        schedule=schedule,
      ),
    ],
    number * replay.memory,
    _CHECKPOINTS * memory.tree_bytes(train_state) + number * replay.disk,
    'It holds the replay of agents with environments on the host: set '
    'replay_on_disk=True, or lower replay_capacity or seeds.',
  )


def _waiting_bytes(
  training: parallel.HostTraining, learn: compilation.Call
) -> int:
  """Counts the parameters that act, and the batches that wait, on a device."""
  _, (_, learners, batches) = learn
  # All but one batch of the current updates wait, and all of the next.
  waiting = 2 * training.agent.config.updates_per_rollout - 1
  size = memory.device_bytes
  return size(learners.params) + waiting * size(batches)
