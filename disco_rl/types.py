"""Records that pass between the parts of the system.

Index convention: a rollout of T transitions has T+1 observations, actions and
behavior logits (index 0..T), and T rewards, terminals and masks (0..T-1).
`reward[t]` and `is_terminal[t]` are the outcome of `action[t]`; where
`is_terminal[t]`, `observation[t + 1]` is the first of the next episode.

Time limits are not terminations, in any environment: values are bootstrapped at
them, and the rule sees the last steps of the episode like those before the end
of a rollout. A masked transition separates the episode from the next one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import operator
from typing import Any
from typing import TypeVar
from typing import dataclass_transform

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any
# The type of numbers, such as jnp.float32.
DType = jax.typing.DTypeLike
# Haiku parameters: module name -> parameter name -> array.
Params = Mapping[str, Mapping[str, Array]]
# Outputs of the agent network, by the name of the head; see OutputSpec.
Outputs = Mapping[str, Array]
Logs = Mapping[str, Array]

# An entry of observations; see `maths.action_masks`.
ACTION_MASK = 'action_mask'

# The smallest side of a picture. Boards of MiniGrid have up to 25 cells a side,
# and digits of MNIST have 28 pixels.
PICTURE_SIDE = 28
# An array with smaller bounds is no picture, whatever its size.
LARGEST_CODE = 127

_Record = TypeVar('_Record')


@dataclass_transform(frozen_default=True)
def record(cls: type[_Record]) -> type[_Record]:
  """Makes a class a frozen dataclass that is also a JAX pytree."""
  return jax.tree_util.register_dataclass(
    dataclasses.dataclass(frozen=True)(cls)
  )


@dataclasses.dataclass(frozen=True)
class OutputSpec:
  """The heads of the agent network that a rule requires, besides the policy.

  Every network also has the head `logits` [A], the policy.

  Attributes:
    state: The widths of heads that depend only on the state, by name.
    action: The widths of heads that exist once per action, by name. If empty,
      the network has no action model.
  """

  state: Mapping[str, int]
  action: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
  """The specification of an environment, as an agent needs it.

  If an observation is a dictionary with the entry 'action_mask', one number for
  each action, the actions with non-zero numbers are legal, and agents take only
  these. Networks do not read the entry.

  Attributes:
    observation: A tree of `jax.ShapeDtypeStruct`, for one environment.
    num_actions: The number of discrete actions A.
    frame_stack: S, the number of frames in the last axis of every leaf of the
      observation, the newest last; 1: frames are not stacked.
    action_repeat: The environment steps per action, in the units of the
      benchmark: in Atari and DMLab, each action is repeated for four frames.
  """

  observation: PyTree
  num_actions: int
  frame_stack: int = 1
  action_repeat: int = 1

  def __post_init__(self) -> None:
    """Raises ValueError for a mask of another size than the actions."""
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
  """Returns whether an observation, or its spec, has a mask of actions."""
  return isinstance(observation, dict) and ACTION_MASK in observation


def is_picture(shape: Sequence[int], dtype: DType) -> bool:
  """Returns whether networks read an array as pixels, scaled to [0, 1].

  Pictures are uint8, with two neighboring axes of at least `PICTURE_SIDE`.
  Other arrays of uint8 are boards, codes or counts, and are not scaled.

  Args:
    shape: The shape in one observation.
    dtype: The type of its numbers.
  """
  is_large = [size >= PICTURE_SIDE for size in shape]
  return dtype == jnp.uint8 and any(map(operator.and_, is_large, is_large[1:]))


@record
class TimeStep:
  """The outcome of one action; leading axes as the caller batches it.

  Attributes:
    observation: The next observation. After the last step of an episode, if the
      environment resets in the same step, the first of the next episode.
    reward: The reward, [] float32.
    is_terminal: [] bool, whether `observation` must not be bootstrapped from.
    is_last: [] bool, whether the episode ended, by a termination or a limit.
    mask: [] bool, False if the transition is an artifact of resetting:
      `observation` is from another episode, and no termination led to it.
  """

  observation: PyTree
  reward: Array
  is_terminal: Array
  is_last: Array
  mask: Array


@record
class Rollout:
  """A batch of trajectories, time-major; the only form of data between parts.

  Attributes:
    observation: A tree of [T+1, B, ...], with the mask of legal actions if the
      environment has one.
    action: [T+1, B] int32; `action[T]` is never learned from.
    logits: [T+1, B, A] float32, of the behavior policy mu.
    reward: [T, B] float32.
    is_terminal: [T, B] bool.
    mask: [T, B] bool, False if the transition is an artifact of resetting.
      Such a transition is not part of any loss or statistic, and estimates of
      earlier transitions do not depend on it.
    core_state: A tree of [1, B, ...], the state of the actor's recurrent core
      before `observation[0]`; empty if its network has no core.
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
  """Makes zeros in the shapes of a rollout.

  Args:
    spec: The spec of the environment.
    core_state: A tree of [B, ...], before the first observation.
    length: T.
    batch_size: B.
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
