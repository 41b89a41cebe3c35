"""Acts with a trained agent step by step, and plays whole episodes."""

import contextlib
import dataclasses

import distrax
import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.environments.jax_native import on_host
from disco_rl.networks import agent_network
from disco_rl.training import checks
from disco_rl.training import whole_episodes

# The number of environments that play in parallel.
_MAX_ENVIRONMENTS = 16
# At 600 x 400 pixels, as in CartPole, they take 720 MB.
MAX_FRAMES = 1_000


@dataclasses.dataclass
class Memory:
  """The state that actions depend on, beside parameters and observations.

  Attributes:
    key: The PRNG key of the actions that are sampled.
    num_calls: The number of calls so far.
    core_state: The core state of the episodes of the last call.
    batch_size: The number of these episodes; 0: the next call begins them.
  """

  key: types.Array
  num_calls: int = 0
  core_state: types.PyTree = None
  batch_size: int = 0

  def reset_core(self) -> None:
    """Makes episodes begin in the next call."""
    self.core_state, self.batch_size = None, 0


def action_keys(seed: int) -> tuple[types.Array, types.Array]:
  """Makes the keys of the actions of `act`, and of played episodes.

  Training and environments with the same seed use other keys, those of numbers
  that are not negative.
  """
  acting, playing = jax.random.split(jax.random.key(-1 - seed))
  return acting, playing


class Player:
  """Acts and plays with one network architecture, compiled once.

  Attributes:
    spec: The specification of the environment, as the agent sees it.
  """

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    environment: family.Environment,
    given: object,
    preprocessing: registry.Preprocessing,
  ):
    """Compiles nothing yet, and makes no environment.

    Args:
      network: The network of the agent.
      environment: An environment like those to play in; it may be closed.
      given: The argument `environment` of `Trainer`, to make new ones.
      preprocessing: The preprocessing of environments by name.
    """
    self.spec = environment.spec
    self._network = network
    self._environment = environment
    self._given = given
    self._preprocessing = preprocessing
    self._act = jax.jit(self._act_batch)
    self._logits = jax.jit(self._logits_batch)
    # JAX environments by batch size: each size is compiled separately.
    self._kept: dict[int, on_host.OnHost] = {}

  def act(
    self,
    params: types.Params,
    memory: Memory,
    observation: types.PyTree,
    greedy: bool,
    is_first: npt.ArrayLike,
  ) -> int | np.ndarray:
    """Chooses actions; `Acting.act` describes results and errors.

    Args:
      params: theta with a leading axis of one agent.
      memory: The memory of these episodes, which the call updates.
      observation: An observation or a batch, in the format of the environment
        before it is wrapped, or of the spec.
      greedy: Whether to take the most likely action.
      is_first: bool or [B], whether an episode begins.
    """
    batch, is_batch = self._to_batch(observation)
    chosen = self._choose(params, memory, batch, greedy, is_first)
    decoded = self._environment.decode(chosen)
    if is_batch:
      return decoded
    return int(decoded[0]) if decoded.ndim == 1 else decoded[0]

  def _to_batch(self, observation: types.PyTree) -> tuple[types.PyTree, bool]:
    """Returns observations [B] in the format of the spec; whether B is given.

    Raises:
      ValueError: The structure or a shape is wrong.
    """
    # The check below reports observations of another structure.
    with contextlib.suppress(LookupError, TypeError):
      observation = self._environment.encode(observation)
    is_batch = self._is_batch(observation)
    batch = jax.tree.map(
      lambda x, leaf: _as_batch(x, leaf, is_batch),
      observation,
      self.spec.observation,
    )
    return batch, is_batch

  def apply(
    self,
    params: types.Params,
    observation: types.PyTree,
    core_state: types.PyTree = None,
  ) -> tuple[types.Array, types.PyTree]:
    """Computes logits [B, A]; `Policy.apply` describes it."""
    if core_state is None:
      size = jax.tree.leaves(observation)[0].shape[0]
      core_state = self._network.initial_state(size)
    one = jax.tree.map(lambda x: x[0], params)
    return self._network.step(one, observation, core_state)

  def distribution(
    self,
    params: types.Params,
    memory: Memory,
    observation: types.PyTree,
    is_first: npt.ArrayLike,
  ) -> distrax.Categorical:
    """Returns the distribution of actions; the memory does not change."""
    batch, is_batch = self._to_batch(observation)
    is_first = self._check(dataclasses.replace(memory), batch, is_first)
    core_state = memory.core_state
    if len(is_first) != memory.batch_size:
      core_state = self._network.initial_state(len(is_first))
    logits = self._logits(params, batch, core_state, is_first)
    return distrax.Categorical(logits=logits if is_batch else logits[0])

  def play(
    self,
    params: types.Params,
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int = whole_episodes.MAX_STEPS,
    has_film: bool = False,
  ) -> tuple[whole_episodes.Episodes, whole_episodes.Film | None]:
    """Plays episodes in new environments, as `Acting.evaluate` describes.

    With `has_film`, there is only one environment, and pictures are taken.
    """
    episodes = config_lib.valid('episodes', episodes, config_lib.Count)
    seed = config_lib.valid('seed', seed, config_lib.CountOrZero)
    max_steps = config_lib.valid('max_steps', max_steps, config_lib.Count)
    number = 1 if has_film else min(episodes, _MAX_ENVIRONMENTS)
    memory = Memory(action_keys(seed)[1])

    def act(observation: types.PyTree, is_first: np.ndarray) -> np.ndarray:
      return self._choose(params, memory, observation, greedy, is_first)

    with contextlib.closing(
      self._environments(number, seed, has_film)
    ) as environment:
      film = whole_episodes.Film(environment, MAX_FRAMES) if has_film else None
      watch = film.take if film else lambda _: None
      played = whole_episodes.play(environment, act, episodes, watch, max_steps)
      return played, film

  def check_new_environments(self) -> None:
    """Raises ValueError if no new environments can be made to play in."""
    if isinstance(self._environment, base.JaxEnvironment):
      return
    source = wrapping.recognize(self._given, self._preprocessing)
    if source.num_environments is not None:
      raise ValueError(
        f'Episodes are played in new environments, but {self._given!r} is a '
        'single object: pass a function that makes it, or a name.'
      )

  def _choose(
    self,
    params: types.Params,
    memory: Memory,
    batch: types.PyTree,
    greedy: bool,
    is_first: npt.ArrayLike,
  ) -> np.ndarray:
    """Returns actions [B] for observations in the format of the spec."""
    is_first = self._check(memory, batch, is_first)
    memory.num_calls += 1
    action, memory.core_state = self._act(
      params,
      batch,
      memory.core_state,
      is_first,
      greedy,
      memory.key,
      memory.num_calls,
    )
    return np.asarray(action)

  def _check(
    self, memory: Memory, batch: types.PyTree, is_first: npt.ArrayLike
  ) -> np.ndarray:
    """Checks observations, and begins with another batch size in the memory.

    Returns:
      Whether each observation is the first of an episode, [B].

    Raises:
      ValueError: An observation is not valid, or episodes change their number.
    """
    checks.check_finite('observation', batch)
    checks.check_dead_ends(batch)
    size = len(jax.tree.leaves(batch)[0])
    is_first = np.broadcast_to(is_first, size)
    if size != memory.batch_size:
      core_state = self._network.initial_state(size)
      if (
        memory.batch_size and not is_first.all() and jax.tree.leaves(core_state)
      ):
        raise ValueError(
          f'There are {size} observations after {memory.batch_size} in the '
          'previous call: set is_first=True where new episodes begin.'
        )
      memory.core_state, memory.batch_size = core_state, size
    return is_first

  def _logits_batch(
    self,
    params: types.Params,
    observation: types.PyTree,
    core_state: types.PyTree,
    is_first: types.Array,
  ) -> types.Array:
    """Computes logits [B, A]; a compiled program."""
    core_state = _reset(core_state, is_first)
    return self.apply(params, observation, core_state)[0]

  def _act_batch(
    self,
    params: types.Params,
    observation: types.PyTree,
    core_state: types.PyTree,
    is_first: types.Array,
    greedy: types.Array,
    key: types.Array,
    num_calls: types.Array,
  ) -> tuple[types.Array, types.PyTree]:
    """Computes actions; the compiled program."""
    logits, core_state = self.apply(
      params, observation, _reset(core_state, is_first)
    )
    policy = distrax.Categorical(logits=logits)
    sampled = policy.sample(seed=jax.random.fold_in(key, num_calls))
    action = jnp.where(greedy, policy.mode(), sampled)
    return action.astype(jnp.int32), core_state

  def _is_batch(self, observation: types.PyTree) -> bool:
    """Returns whether there is a batch axis; raises for other shapes."""
    specs = jax.tree.leaves(self.spec.observation)
    leaves = jax.tree.leaves(observation)
    is_batch = bool(leaves) and np.ndim(leaves[0]) == len(specs[0].shape) + 1
    leading = (len(leaves[0]),) if is_batch else ()
    checks.check_shapes(
      'observation',
      observation,
      self.spec.observation,
      leading,
      'one observation, or a batch with one leading axis',
    )
    return is_batch

  def _environments(
    self, number: int, seed: int, can_render: bool
  ) -> base.HostEnvironment:
    """Returns new environments, or existing ones with another seed."""
    if isinstance(self._environment, base.JaxEnvironment):
      if number not in self._kept:
        self._kept[number] = on_host.OnHost(self._environment, number, seed)
      self._kept[number].seed(seed)
      return self._kept[number]
    self.check_new_environments()
    source = wrapping.recognize(self._given, self._preprocessing, can_render)
    environment = source.build(number, seed)
    assert isinstance(environment, base.HostEnvironment)
    return environment


def _reset(core_state: types.PyTree, is_first: types.Array) -> types.PyTree:
  """Zeros the state of the core [B, ...] where episodes begin."""
  return jax.tree.map(
    lambda x: jnp.where(is_first[:, None], jnp.zeros_like(x), x), core_state
  )


def _as_batch(
  x: types.PyTree, spec: types.PyTree, is_batch: bool
) -> np.ndarray:
  with np.errstate(over='ignore'):  # `check_finite` reports the results.
    array = np.asarray(x, spec.dtype)
  return array if is_batch else array[None]
