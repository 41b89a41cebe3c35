"""Estimates the memory of a population before anything is compiled."""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import host_replay
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import population
from disco_rl.meta_training import resets
from disco_rl.runtime import memory

# Activations of one update over the network's outputs, as compiled for CPUs in
# each mode; benchmarks/meta_step.py prints what was compiled and the estimate.
_ACTIVATIONS = 11


@dataclasses.dataclass(frozen=True)
class Footprint:
  """Bytes of one agent.

  Attributes:
    state: parameters, optimisers, statistics, and replay on the device.
    trajectory: learner states, batches and gradients of N updates.
    activations: of the updates that are differentiated at a time.
    host_replay: replay in the host's memory, of environments there.
  """

  state: int
  trajectory: int
  activations: int
  host_replay: int = 0

  @property
  def working(self) -> int:
    """Additional bytes while the agent is computed."""
    return self.trajectory + self.activations


def of_agent(
  inner_loop: inner_loop_lib.InnerLoop,
  mode: str,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  batch_devices: int = 1,
  is_on_host: bool = False,
) -> Footprint:
  """Estimates an agent's memory from the shapes of its arrays.

  Args:
    inner_loop: N updates and validation, for one kind of agent.
    mode: of differentiation; see `meta_gradient.MODES`.
    optimizer: of eta.
    rule_params: eta.
    batch_devices: that share its batches.
    is_on_host: whether its environments are, and so its replay.

  Returns:
    The estimate, for each of these devices.
  """
  member, batch, outputs = jax.eval_shape(
    lambda: _example(inner_loop, optimizer, rule_params)
  )
  learner_state = memory.tree_bytes(member.agent.learner)
  gradient = memory.tree_bytes(member.agent.learner.params)
  config = inner_loop.config
  updates, k = config.inner_updates, config.save_every
  trajectory = updates // k * learner_state
  trajectory += updates * memory.tree_bytes(batch) // batch_devices
  trajectory += updates * gradient if k == 1 else k * (learner_state + gradient)
  at_once = k if mode == 'plain' else 1
  replay = memory.tree_bytes(member.agent.replay) if is_on_host else 0
  return Footprint(
    state=memory.tree_bytes(member) - replay,
    trajectory=0 if config.offload else trajectory,
    activations=_ACTIVATIONS
    * at_once
    * memory.tree_bytes(outputs)
    // batch_devices,
    host_replay=_host_replay(inner_loop) if is_on_host else 0,
  )


def _host_replay(inner_loop: inner_loop_lib.InnerLoop) -> int:
  """Bytes of an agent's replay in the host's memory."""
  agent = inner_loop.agent
  if agent.config.replay_on_disk:
    return 0
  return host_replay.footprint(
    agent.environment_spec,
    agent.network.initial_state(1),
    agent.config.unroll_length,
    agent.config.replay_capacity,
  ).memory


def _example(
  inner_loop: inner_loop_lib.InnerLoop,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
) -> tuple[inner_loop_lib.Member, types.Rollout, types.Outputs]:
  """A member, a batch and the network's outputs on it; for their shapes."""
  member = resets.initial_member(inner_loop, jax.random.key(0))
  member = dataclasses.replace(
    member.replace_agent(replay=inner_loop.agent.empty_replay()),
    meta_opt_state=optimizer.init(rule_params),
  )
  slots = jnp.zeros((inner_loop.agent.config.batch_size,), jnp.int32)
  batch = jax.tree.map(
    lambda kept: jnp.take(kept, slots, axis=1), member.agent.replay.rollouts
  )
  outputs, _ = inner_loop.agent.network.unroll(
    member.agent.learner.params, batch
  )
  return member, batch, outputs


def check(
  groups: Sequence[population.Group], mode: str, rule_params: types.Params
) -> None:
  """Raises ValueError if the population does not fit into memory.

  Args:
    groups: the population.
    mode: of differentiation.
    rule_params: eta.
  """
  needed, on_host, lines = 0, 0, []
  for group in groups:
    config = group.config
    shards, batch_devices = config.mesh.devices.shape
    one = of_agent(
      config.inner_loop,
      mode,
      config.optimizer,
      rule_params,
      batch_devices,
      group.is_on_host,
    )
    working = config.chunk * one.working
    if group.is_on_host:
      # The others wait in the host's memory.
      working += config.chunk * one.state
      on_host += len(config.own_members) * (one.state + one.host_replay)
    else:
      needed += config.num_members // shards * one.state
    lines.append((working, one, config))
  _check_host(on_host)
  working, one, config = max(lines, key=lambda line: line[0])
  available = memory.total_bytes()
  if needed + working <= available:
    return
  gib = lambda x: f'{x / 2**30:.2f} GiB'
  raise ValueError(
    f'The population needs about {gib(needed + working)} on each device, of '
    f'{gib(available)}. An agent on {config.names[0]} keeps {gib(one.state)} '
    f'and takes {gib(one.working)} more while it is computed, {config.chunk} '
    'at a time. Lower chunk_size, agents, batch_size or replay_capacity; raise '
    'save_every; set offload=True; or start from a :tiny config.'
  )


def _check_host(needed: int) -> None:
  """Raises ValueError if waiting agents and replay exceed the host's memory."""
  available = memory.host_bytes()
  if needed <= available:
    return
  raise ValueError(
    f'Agents beside environments on the host need about {needed / 2**30:.2f} '
    f'GiB of its {available / 2**30:.2f} GiB of memory, most of it for replay. '
    'Set replay_on_disk=True, or lower replay_capacity or agents.'
  )
