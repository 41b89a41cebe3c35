"""Records that pass between the parts of the system.

Index convention: a rollout of T transitions holds T+1 observations, actions and
behaviour logits (index 0..T), and T rewards, terminals and masks (0..T-1).
`reward[t]` and `is_terminal[t]` are the outcome of `action[t]`; where
`is_terminal[t]`, `observation[t + 1]` is the first of the next episode.

Time limits are no terminations, in any environment: values are bootstrapped at
them, and the rule sees the episode's steps as it sees those before the end of a
rollout. A masked transition is between the episode and the next one.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import TypeVar
from typing import dataclass_transform

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any
# Haiku parameters: module name -> parameter name -> array.
Params = Mapping[str, Mapping[str, Array]]
# Outputs of the agent network by the name of the head; see OutputSpec.
Outputs = Mapping[str, Array]
Logs = Mapping[str, Array]

# An entry of observations; see `maths.action_masks`.
ACTION_MASK = 'action_mask'

_Record = TypeVar('_Record')


@dataclass_transform(frozen_default=True)
def record(cls: type[_Record]) -> type[_Record]:
  """Class decorator: a frozen dataclass that is also a JAX pytree."""
  return jax.tree_util.register_dataclass(
    dataclasses.dataclass(frozen=True)(cls)
  )


@dataclasses.dataclass(frozen=True)
class OutputSpec:
  """Which heads a rule wants of the agent network, beside the policy.

  Every network also has the head `logits` [A], the policy.

  Attributes:
    state: widths of the heads that depend on the state alone, by name.
    action: widths of the heads that exist once per action, by name. Empty: the
      network has no action model.
  """

  state: Mapping[str, int]
  action: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
  """What an agent must know of an environment.

  An observation that is a dictionary with the entry 'action_mask', one number
  for each action, says which actions are legal: those that are not 0. No others
  are taken. Networks do not read the entry.

  Attributes:
    observation: tree of `jax.ShapeDtypeStruct`, of one environment (no batch).
    num_actions: number of discrete actions A.
    frame_stack: S, the number of frames of which the last axis of every leaf of
      the observation consists, the newest last; 1: they are not stacked.
    action_repeat: environment steps that an action takes. They are what a
      benchmark counts: the frames of Atari and DMLab, of which four see the
      same action.
  """

  observation: PyTree
  num_actions: int
  frame_stack: int = 1
  action_repeat: int = 1

  def __post_init__(self) -> None:
    """Raises ValueError for a mask that is not of the actions."""
    if not has_action_mask(self.observation):
      return
    shape = tuple(self.observation[ACTION_MASK].shape)
    if shape != (self.num_actions,):
      raise ValueError(
        f'observation[{ACTION_MASK!r}] is of shape {[*shape]}, and there are '
        f'{self.num_actions} actions: it says which of them are legal, one '
        'number each. Rename the entry if it is something else.'
      )


def has_action_mask(observation: PyTree) -> bool:
  """Whether an observation, or its spec, says which actions are legal."""
  return isinstance(observation, dict) and ACTION_MASK in observation


@record
class TimeStep:
  """The outcome of one action; leading axes as the caller batches it.

  Attributes:
    observation: what the agent sees next. After the last step of an episode in
      an environment that resets at once: the first of the next episode.
    reward: [] float32.
    is_terminal: [] bool, nothing may be bootstrapped from `observation`.
    is_last: [] bool, the episode ended, by termination or by a time limit.
    mask: [] bool, False where the transition is an artefact of resetting:
      `observation` is of another episode, and no termination led to it.
  """

  observation: PyTree
  reward: Array
  is_terminal: Array
  is_last: Array
  mask: Array


@record
class Rollout:
  """A batch of trajectories, time-major; the only form in which data travels.

  Attributes:
    observation: tree of [T+1, B, ...], with the mask of legal actions where the
      environment has one.
    action: [T+1, B] int32; `action[T]` is never learnt from.
    logits: [T+1, B, A] float32, of the behaviour policy mu.
    reward: [T, B] float32.
    is_terminal: [T, B] bool.
    mask: [T, B] bool, False where the transition is an artefact of resetting.
      It is neither learnt from nor part of any statistic, and the transitions
      before it do not see it.
    core_state: tree of [1, B, ...], of the actor's recurrent core before it saw
      `observation[0]`; empty if its network has none.
  """

  observation: PyTree
  action: Array
  logits: Array
  reward: Array
  is_terminal: Array
  mask: Array
  core_state: PyTree = ()


def empty_rollout(
  spec: EnvironmentSpec, core_state: PyTree, length: int, batch_size: int
) -> Rollout:
  """Zeros of the shapes of a rollout.

  Args:
    spec: The spec of the environment.
    core_state: tree of [B, ...], before the first observation.
    length: T.
    batch_size: B.

  Returns:
    The rollout.
  """
  return Rollout(
    observation=jax.tree.map(
      lambda leaf: jnp.zeros((length + 1, batch_size, *leaf.shape), leaf.dtype),
      spec.observation,
    ),
    action=jnp.zeros((length + 1, batch_size), jnp.int32),
    logits=jnp.zeros((length + 1, batch_size, spec.num_actions)),
    reward=jnp.zeros((length, batch_size)),
    is_terminal=jnp.zeros((length, batch_size), bool),
    mask=jnp.zeros((length, batch_size), bool),
    core_state=jax.tree.map(lambda x: x[None], core_state),
  )
