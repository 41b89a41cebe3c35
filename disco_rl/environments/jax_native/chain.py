"""Chains: tasks with delayed rewards and credit assignment."""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments.jax_native import draws


@types.record
class ChainState:
  """The state of an episode.

  Attributes:
    step: The number of steps in this episode, [] int32.
    length: The length of this episode, [] int32.
    cue: The cue of this episode, [] int32.
    choice: The decisive action, [] int32; -1 before it.
  """

  step: types.Array
  length: types.Array
  cue: types.Array
  choice: types.Array


@types.record
class Chain(base.JaxEnvironment):
  """One action determines the reward of the last step; see `build`.

  The length and one of C cues are drawn for each episode. The action in step
  `decision_step`, counted from 0, is the choice: its `lure` is added to the
  reward immediately, and its `payoff` for the cue is the reward of the last
  step. All other actions have no effect. Rewards before the last step also
  include +`noise` or -`noise` at random.

  The observation is [P + C + A + D] float32: the step one-hot, the cue one-hot,
  the choice one-hot once made, and D random bits as distractors.

  Attributes:
    payoff: [C, A] float32.
    lure: [A] float32.
    min_length: [] int32.
    max_length: [] int32, at most P.
    decision_step: [] int32, less than `min_length`.
    noise: [] float32.
    bit_rate: [] float32, probability that a random bit is 1.
    hides_choice: [] bool, the choice is never observed.
    num_positions: P.
    num_bits: D.
  """

  payoff: types.Array
  lure: types.Array
  min_length: types.Array
  max_length: types.Array
  decision_step: types.Array
  noise: types.Array
  bit_rate: types.Array
  hides_choice: types.Array
  num_positions: int = dataclasses.field(metadata={'static': True})
  num_bits: int = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of one task, even if several are stacked."""
    *_, num_cues, num_actions = self.payoff.shape
    size = self.num_positions + num_cues + num_actions + self.num_bits
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct((size,), jnp.float32),
      num_actions=num_actions,
    )

  def reset(self, key: types.Array) -> tuple[ChainState, types.Array]:
    """Begins an episode; see the class for the observation."""
    uniform = draws.uniform(key, 2 + self.num_bits)
    del key
    num_lengths = 1 + self.max_length - self.min_length
    state = ChainState(
      step=jnp.int32(0),
      length=self.min_length + draws.below(num_lengths, uniform[0]),
      cue=draws.below(self.payoff.shape[0], uniform[1]),
      choice=jnp.int32(-1),
    )
    return state, self._observe(state, uniform[2:])

  def step(
    self, state: ChainState, action: types.Array, key: types.Array
  ) -> tuple[ChainState, types.TimeStep]:
    """Implements `JaxEnvironment.step`."""
    uniform = draws.uniform(key, 1 + self.num_bits)
    del key
    decides = state.step == self.decision_step
    choice = jnp.where(decides, action, state.choice)
    is_last = state.step + 1 == state.length
    lure = jnp.where(decides, self.lure[action], 0.0)
    noise = jnp.where(uniform[0] < 0.5, -self.noise, self.noise)
    state = ChainState(
      step=state.step + 1, length=state.length, cue=state.cue, choice=choice
    )
    return state, types.TimeStep(
      observation=self._observe(state, uniform[1:]),
      reward=lure + jnp.where(is_last, self.payoff[state.cue, choice], noise),
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def render(self, state: ChainState) -> np.ndarray:
    """Implements `JaxEnvironment.render`.

    From top to bottom: the cue, the choice once it is made, and the steps so
    far.
    """
    width = max(self.num_positions + 1, *self.payoff.shape)
    place = np.arange(width)
    shown = [state.cue, state.choice, state.step]
    rows = np.eye(3, dtype=bool)[:, :, None] & np.stack(
      [place == np.asarray(x) for x in shown]
    )
    ends = np.zeros((3, width), bool)
    ends[2] = place > np.asarray(state.length)
    colors = (boards.COLORS[0], boards.COLORS[1], boards.AGENT)
    return boards.paint((ends, boards.WALL), *zip(rows, colors))

  def _observe(self, state: ChainState, uniform: types.Array) -> types.Array:
    """Returns the observation; `uniform` [D] determines the random bits."""
    num_cues, num_actions = self.payoff.shape
    shown = jnp.where(self.hides_choice, -1, state.choice)
    return jnp.concatenate(
      [
        jnp.arange(self.num_positions) == state.step,
        jnp.arange(num_cues) == state.cue,
        jnp.arange(num_actions) == shown,
        uniform < self.bit_rate,
      ]
    ).astype(jnp.float32)


def build(
  payoff: Sequence[Sequence[float]],
  lengths: tuple[int, int],
  *,
  num_positions: int,
  num_bits: int,
  lure: Sequence[float] | None = None,
  decision_step: int = 0,
  noise: float = 0.0,
  bit_rate: float = 0.0,
  hides_choice: bool = False,
) -> Chain:
  """Makes a chain.

  The arguments are the attributes of `Chain`, with the minimal and maximal
  `lengths` of episodes; `lure` is 0 by default. Tasks with equal C, A, P and D
  stack.

  Raises:
    ValueError: A number is out of range.
  """
  shortest, longest = lengths
  if not 0 <= decision_step < shortest <= longest <= num_positions:
    raise ValueError(
      'Required: 0 <= decision_step < shortest <= longest <= num_positions; '
      f'got {decision_step}, {shortest}, {longest}, {num_positions}.'
    )
  if not 0 <= bit_rate <= 1:
    raise ValueError(f'bit_rate must be in [0, 1], got {bit_rate}.')
  table = np.asarray(payoff, np.float32)
  first = np.zeros(table.shape[1:]) if lure is None else np.asarray(lure)
  if table.ndim != 2 or first.shape != table.shape[1:]:
    raise ValueError(
      f'payoff must be [C, A] and lure [A], got {table.shape}, {first.shape}.'
    )
  return Chain(
    payoff=jnp.asarray(table),
    lure=jnp.asarray(first, jnp.float32),
    min_length=jnp.int32(shortest),
    max_length=jnp.int32(longest),
    decision_step=jnp.int32(decision_step),
    noise=jnp.float32(noise),
    bit_rate=jnp.float32(bit_rate),
    hides_choice=jnp.bool_(hides_choice),
    num_positions=num_positions,
    num_bits=num_bits,
  )
