"""Environments of other JAX libraries, by ones of their interfaces."""

import dataclasses
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import wrapping


@types.record
class Count:
  """Steps so far; the outcome of the last one; extras that resets lack."""

  observation: types.Array
  reward: types.Array
  ending: types.Array
  key: types.Array
  extras: Any = None
  legal_action_mask: Any = None

  @property
  def step_type(self) -> types.Array:
    return jnp.where(self.ending > 0, 2, 1)

  @property
  def discount(self) -> types.Array:
    return jnp.where(self.ending == 2, 0.0, 1.0)

  @property
  def rewards(self) -> types.Array:
    return self.reward[None]

  @property
  def terminated(self) -> types.Array:
    return self.is_termination()

  @property
  def truncated(self) -> types.Array:
    return self.is_truncation()

  def is_truncation(self) -> types.Array:
    return self.ending == 1

  def is_termination(self) -> types.Array:
    return self.ending == 2


def begin(key: types.Array) -> Count:
  # Raw keys, as the states of these libraries declare.
  assert (key.shape, key.dtype) == ((2,), jnp.uint32)
  return Count(jnp.int32(0), jnp.float32(0), jnp.int32(0), key)


def move(count: Count, action: types.Array, limit: int = 4) -> Count:
  """Action 2 ends the episode; the reward is the action."""
  number = count.observation + 1
  ending = jnp.where(action == 2, 2, jnp.where(number == limit, 1, 0))
  return dataclasses.replace(
    count,
    observation=number,
    reward=action.astype(jnp.float32),
    ending=ending.astype(jnp.int32),
  )


@dataclasses.dataclass
class Space:
  n: int
  num_values: int
  shape: tuple[int, ...] = ()


class Navix:
  action_space = Space(3, 3)

  def reset(self, key: Any, cache: Any = None) -> Any:
    del cache
    return begin(key)

  def step(self, timestep: Any, action: Any) -> Any:
    return move(timestep, action)


class Xminigrid:
  def default_params(self) -> Any:
    return 4

  def num_actions(self, params: Any) -> int:
    return params - 1

  def reset(self, params: Any, key: Any) -> Any:
    del params
    return begin(key)

  def step(self, params: Any, timestep: Any, action: Any) -> Any:
    return move(timestep, action, params)


class Pgx:
  num_players = 1
  num_actions = 3

  def init(self, key: Any) -> Any:
    return self._with_mask(begin(key))

  def step(self, state: Any, action: Any, key: Any = None) -> Any:
    assert key is not None
    return self._with_mask(move(state, action))

  def _with_mask(self, count: Count) -> Count:
    legal = jnp.arange(3) <= count.observation
    return dataclasses.replace(count, legal_action_mask=legal)


class Jumanji:
  action_spec = Space(3, 3)

  def reset(self, key: Any) -> Any:
    return begin(key), begin(key)

  def step(self, state: Any, action: Any) -> Any:
    new = move(state, action)
    return new, dataclasses.replace(new, extras={'more': action})


class Seen(NamedTuple):
  """An observation of jumanji."""

  observation: Any
  action_mask: Any


class MaskedJumanji(Jumanji):
  """The same with masks, in named tuples."""

  def reset(self, key: Any) -> Any:
    return self._masked(super().reset(key))

  def step(self, state: Any, action: Any) -> Any:
    return self._masked(super().step(state, action))

  def _masked(self, outcome: Any) -> Any:
    state, timestep = outcome
    number = timestep.observation
    seen = Seen(number, jnp.arange(3) <= number)
    return state, dataclasses.replace(timestep, observation=seen)


class TrappedJumanji(MaskedJumanji):
  """The same, but no action is legal after the first."""

  def step(self, state: Any, action: Any) -> Any:
    state, timestep = super().step(state, action)
    seen = timestep.observation._replace(action_mask=jnp.zeros(3, bool))
    return state, dataclasses.replace(timestep, observation=seen)


def test_where_jumanji_forbids_all_actions_any_is_taken() -> None:
  environment: Any = wrapping.recognize(TrappedJumanji()).build(1, 0)
  state, first = environment.reset(jax.random.key(0))
  np.testing.assert_array_equal(first['action_mask'], [True, False, False])
  _, timestep = environment.step(state, jnp.int32(0), jax.random.key(1))
  assert timestep.observation['action_mask'].all()


@pytest.mark.parametrize(
  'given',
  [
    *[Navix(), Xminigrid(), (Xminigrid(), 4), (Pgx(), None)],
    *[Jumanji(), MaskedJumanji()],
  ],
  ids=lambda given: type(given).__name__,
)
def test_episodes_are_those_of_the_library(given: Any) -> None:
  source = wrapping.recognize(given)
  assert source.num_environments is None
  environment: Any = source.build(1, 0)
  assert environment.spec.num_actions == 3
  spec = environment.spec.observation
  is_masked = types.has_action_mask(spec)
  library = given[0] if isinstance(given, tuple) else given
  assert is_masked == isinstance(library, (Pgx, MaskedJumanji))
  if is_masked:
    assert spec.pop('action_mask').shape == (3,)
    (spec,) = spec.values()
  assert spec == jax.ShapeDtypeStruct((), jnp.int32)
  state, first = environment.reset(jax.random.key(0))

  def number(observation: Any) -> int:
    if is_masked:
      legal = np.arange(3) <= observation['observation']
      np.testing.assert_array_equal(observation['action_mask'], legal)
      observation = observation['observation']
    return int(observation)

  step = jax.jit(environment.step_autoreset)
  seen = [number(first)]
  outcomes = []
  for i, action in enumerate([0, 1, 2, 0, 1, 0, 1]):
    state, timestep = step(state, jnp.int32(action), jax.random.key(i))
    seen.append(number(timestep.observation))
    outcomes.append(
      [
        float(timestep.reward),
        bool(timestep.is_terminal),
        bool(timestep.is_last),
        bool(timestep.mask),
      ]
    )
  # A termination after three steps, then the limit after four: its last
  # observation is not shown, and its step is masked.
  assert seen == [0, 1, 2, 0, 1, 2, 3, 0]
  expected = np.zeros((7, 4))
  expected[:, 0] = [0, 1, 2, 0, 1, 0, 1]
  expected[[2, 6], 1] = expected[[2, 6], 2] = 1
  expected[:6, 3] = 1
  np.testing.assert_array_equal(outcomes, expected)


def begin_late(key: types.Array) -> Count:
  """Begins with a last step for half of the keys; the number is the key."""
  ending = jnp.where(key[1] % 2 == 0, 2, 0).astype(jnp.int32)
  number = (key[1] % 1024).astype(jnp.int32)
  return dataclasses.replace(begin(key), observation=number, ending=ending)


class LateNavix(Navix):
  def reset(self, key: Any, cache: Any = None) -> Any:
    del cache
    return begin_late(key)


class LateXminigrid(Xminigrid):
  def reset(self, params: Any, key: Any) -> Any:
    del params
    return begin_late(key)


class LatePgx(Pgx):
  def init(self, key: Any) -> Any:
    return self._with_mask(begin_late(key))


class LateJumanji(Jumanji):
  def reset(self, key: Any) -> Any:
    return begin_late(key), begin_late(key)


class OverJumanji(Jumanji):
  def reset(self, key: Any) -> Any:
    return (move(begin(key), jnp.int32(2)),) * 2


@pytest.mark.parametrize(
  'library', [LateNavix(), LateXminigrid(), LatePgx(), LateJumanji()]
)
def test_episodes_that_are_over_when_they_begin_are_skipped(
  library: Any,
) -> None:
  environment: Any = wrapping.recognize((library, None)).build(1, 0)
  keys = jax.random.split(jax.random.key(0), 32)
  _, first = jax.jit(jax.vmap(environment.reset))(keys)
  if isinstance(first, dict):
    first = first['observation']
  own = np.asarray(jax.random.key_data(keys))[:, 1]
  assert np.all(np.asarray(first) % 2 == 1)
  # Other episodes begin as they did.
  is_odd = own % 2 == 1
  assert 0 < is_odd.sum() < 32
  np.testing.assert_array_equal(first[is_odd], own[is_odd] % 1024)
  # The others with the first key that begins one, of those that are folded
  # from the first: 1, 2, and so on.
  tried = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(
    keys, np.arange(1, 16)
  )
  words = np.asarray(jax.random.key_data(tried))[..., 1]
  chosen = np.argmax(words % 2 == 1, axis=1)
  assert set(chosen[~is_odd]) >= {0, 1, 2}
  expected = words[np.arange(32), chosen] % 1024
  np.testing.assert_array_equal(first[~is_odd], expected[~is_odd])


def test_episodes_that_are_all_over_are_refused() -> None:
  with pytest.raises(ValueError, match='OverJumanji: reset .* 1000 times'):
    wrapping.recognize(OverJumanji())


def test_what_one_agent_cannot_play_is_refused() -> None:
  two = Pgx()
  two.num_players = 2
  with pytest.raises(ValueError, match='Pgx has 2 players, but only one'):
    wrapping.recognize(two)
  many = Jumanji()
  many.action_spec = Space(3, 3, (2,))
  with pytest.raises(ValueError, match='Jumanji has actions .* only discrete'):
    wrapping.recognize((many, None))
