"""Estimates the memory of a population before anything is compiled."""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
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
    state: parameters, optimisers, replay; always allocated.
    trajectory: learner states, batches and gradients of N updates.
    activations: of the updates that are differentiated at a time.
  """

  state: int
  trajectory: int
  activations: int

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
) -> Footprint:
  """Estimates an agent's memory from the shapes of its arrays.

  Args:
    inner_loop: N updates and validation, for one kind of agent.
    mode: of differentiation; see `meta_gradient.MODES`.
    optimizer: of eta.
    rule_params: eta.
    batch_devices: that share its batches.

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
  return Footprint(
    state=memory.tree_bytes(member),
    trajectory=0 if config.offload else trajectory,
    activations=_ACTIVATIONS
    * at_once
    * memory.tree_bytes(outputs)
    // batch_devices,
  )


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
  """Raises ValueError if the population does not fit into the devices' memory.

  Args:
    groups: the population.
    mode: of differentiation.
    rule_params: eta.
  """
  needed, lines = 0, []
  for group in groups:
    config = group.config
    shards, batch_devices = config.mesh.devices.shape
    one = of_agent(
      config.inner_loop, mode, config.optimizer, rule_params, batch_devices
    )
    needed += config.num_members // shards * one.state
    lines.append((config.chunk * one.working, one, config))
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
