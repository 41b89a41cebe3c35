"""JAX-native environments of other libraries, in the style of gymnax.

They are recognized by their methods, without importing their packages:
  navix      env.reset(key) and env.step(timestep, action) return a time step
  xminigrid  env.reset(params, key), env.step(params, timestep, action) do too
  pgx        env.init(key) and env.step(state, action, key) return a state
  jumanji    env.reset(key) and env.step(state, action) return a state and a
             time step
The masks of legal actions of the last two are entries of the observation.
"""

from collections.abc import Callable
import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.environments.host import data_checks

# `StepType.LAST` of dm_env, which xminigrid and jumanji follow.
_LAST = 2
# Episodes that are over when they begin are skipped, but not for ever.
_MOST_EMPTY = 1000
# A library's trees of arrays.
_State = types.PyTree
_Params = types.PyTree
# Reward, is_terminal and is_last of the step to a state.
_Outcome = tuple[types.Array, types.Array, types.Array]


@dataclasses.dataclass(frozen=True)
class Actions:
  """An action space of gymnax, with `n` actions."""

  n: int


@dataclasses.dataclass(frozen=True, eq=False)
class Adapted:
  """An environment of a library, with the methods of gymnax.

  Keys are raw, uint32 [2], as the states of these libraries require. If a reset
  returns a last step, the episode is empty, and is skipped, as on the host.

  Attributes:
    num_actions: A.
    reset: (key, params) -> state.
    step: (key, state, action, params) -> the next state.
    observe: state -> its observation.
    outcome: state -> the outcome of the step to it.
  """

  num_actions: int
  reset: Callable[[types.Array, _Params], _State]
  step: Callable[[types.Array, _State, types.Array, _Params], _State]
  observe: Callable[[_State], types.PyTree]
  outcome: Callable[[_State], _Outcome]

  def reset_env(
    self, key: types.Array, params: _Params
  ) -> tuple[types.PyTree, _State]:
    """Returns the first observation and the state."""
    state = self._begin(jax.random.key_data(key), params)
    return self.observe(state), state

  def check_resets(self, params: _Params) -> None:
    """Raises ValueError if all episodes are over before they begin."""
    key = jax.random.key_data(jax.random.key(0))
    if jax.jit(lambda: self._is_over(self._begin(key, params)))():
      raise ValueError(
        f'reset returned a step that ends the episode {_MOST_EMPTY} times in a '
        'row: let it return one at which the episode begins.'
      )

  def _begin(self, key: types.Array, params: _Params) -> _State:
    """Resets until an episode is not over."""
    shapes = jax.eval_shape(self.reset, key, params)
    # `lax.full` also makes keys, which states may contain.
    nothing = jax.tree.map(lambda x: jax.lax.full(x.shape, 0, x.dtype), shapes)

    def is_empty(carry: tuple[types.Array, _State]) -> types.Array:
      number, state = carry
      is_over = self._is_over(state) & (number < _MOST_EMPTY)
      return (number == 0) | is_over

    def reset(
      carry: tuple[types.Array, _State],
    ) -> tuple[types.Array, _State]:
      number, _ = carry
      another = jax.random.fold_in(key, number)
      state = self.reset(jnp.where(number == 0, key, another), params)
      return number + 1, state

    _, state = jax.lax.while_loop(is_empty, reset, (jnp.int32(0), nothing))
    return state

  def _is_over(self, state: _State) -> types.Array:
    _, _, is_last = self.outcome(state)
    return is_last

  def step_env(
    self, key: types.Array, state: _State, action: types.Array, params: _Params
  ) -> tuple[types.PyTree, ...]:
    """Returns observation, state, reward, whether it is terminal, and {}."""
    state = self.step(jax.random.key_data(key), state, action, params)
    reward, is_terminal, _ = self.outcome(state)
    return self.observe(state), state, reward, is_terminal, {}

  def is_truncated(self, state: _State, params: _Params) -> types.Array:
    """Returns whether a time limit ended the episode."""
    del params
    _, is_terminal, is_last = self.outcome(state)
    return is_last & ~is_terminal

  def action_space(self, params: _Params) -> Actions:
    """Returns the space of actions."""
    del params
    return Actions(self.num_actions)


def _navix(env: Any, num_actions: int) -> Adapted:
  def outcome(timestep: _State) -> _Outcome:
    is_terminal = timestep.is_termination()
    return timestep.reward, is_terminal, is_terminal | timestep.is_truncation()

  return Adapted(
    num_actions,
    reset=lambda key, _: env.reset(key),
    step=lambda _, timestep, action, __: env.step(timestep, action),
    observe=lambda timestep: timestep.observation,
    outcome=outcome,
  )


def _xminigrid(env: Any, num_actions: int) -> Adapted:
  return Adapted(
    num_actions,
    reset=lambda key, params: env.reset(params, key),
    step=lambda _, timestep, action, params: env.step(params, timestep, action),
    observe=lambda timestep: timestep.observation,
    outcome=_outcome_of_dm_env,
  )


def _pgx(env: Any, num_actions: int) -> Adapted:
  def observe(state: _State) -> types.PyTree:
    return {
      'observation': state.observation,
      types.ACTION_MASK: state.legal_action_mask,
    }

  def outcome(state: _State) -> _Outcome:
    is_terminal = jnp.asarray(state.terminated)
    return state.rewards[0], is_terminal, is_terminal | state.truncated

  return Adapted(
    num_actions,
    reset=lambda key, _: env.init(key),
    step=lambda key, state, action, _: env.step(state, action, key),
    observe=observe,
    outcome=outcome,
  )


def _jumanji(env: Any, num_actions: int) -> Adapted:
  def kept(outcome: types.PyTree) -> _State:
    """Drops extras of state and time step, which resets may lack."""
    state, timestep = outcome
    return state, dataclasses.replace(timestep, extras=None)

  def observe(state: _State) -> types.PyTree:
    observation = state[1].observation
    if not hasattr(observation, types.ACTION_MASK):
      return observation
    entries = {
      name: getattr(observation, name)
      for name in data_checks.fields_of(observation)
    }
    # Where a game is lost, as for a trapped snake, jumanji forbids all actions
    # and lets the next one, whichever it is, end the episode.
    mask = entries[types.ACTION_MASK]
    entries[types.ACTION_MASK] = jnp.where(
      jnp.any(mask), mask, jnp.ones_like(mask)
    )
    return entries

  return Adapted(
    num_actions,
    reset=lambda key, _: kept(env.reset(key)),
    step=lambda _, state, action, __: kept(env.step(state[0], action)),
    observe=observe,
    outcome=lambda state: _outcome_of_dm_env(state[1]),
  )


def _outcome_of_dm_env(timestep: _State) -> _Outcome:
  is_last = timestep.step_type == _LAST
  return timestep.reward, is_last & (timestep.discount == 0), is_last


def adapt(env: Any, params: _Params) -> tuple[Adapted, _Params] | None:
  """Adapts an environment to the methods of gymnax, if its library is known.

  Args:
    env: An object.
    params: The parameters of the environment; None: the defaults, if any.

  Returns:
    The environment and its parameters; None if the library is unknown.

  Raises:
    ValueError: The actions are not discrete, or there are several players.
  """
  if isinstance(env, type):
    return None
  own = () if params is None else params
  reset, step = _arguments(env, 'reset'), _arguments(env, 'step')
  name = type(env).__name__
  if _arguments(env, 'init')[:1] == ['key'] and hasattr(env, 'num_players'):
    if env.num_players != 1:
      raise ValueError(
        f'{name} has {env.num_players} players, but only one agent: wrap it in '
        'an environment that makes the moves of the others.'
      )
    return _pgx(env, int(env.num_actions)), own
  if reset == ['params', 'key'] and step[:1] == ['params']:
    params = env.default_params() if params is None else params
    return _xminigrid(env, int(env.num_actions(params))), params
  if reset[:1] == ['key'] and step == ['timestep', 'action']:
    return _navix(env, _number(name, env.action_space, 'n')), own
  is_jumanji = reset == ['key'] and step == ['state', 'action']
  if is_jumanji and hasattr(env, 'action_spec'):
    return _jumanji(env, _number(name, env.action_spec, 'num_values')), own
  return None


def _arguments(env: object, method: str) -> list[str]:
  """Returns the names of a method's arguments; [] without such a method."""
  function: Callable[..., object] | None = getattr(env, method, None)
  if not callable(function):
    return []
  try:
    return list(inspect.signature(function).parameters)
  except ValueError:
    return []


def _number(name: str, space: object, attribute: str) -> int:
  number = getattr(space, attribute, None)
  if number is None or jnp.ndim(number) or getattr(space, 'shape', None):
    raise ValueError(
      f'{name} has actions {space}: only discrete actions are supported, one '
      'number each. Let the environment number its actions.'
    )
  return int(number)
