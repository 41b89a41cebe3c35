"""Acting with a trained agent, one call for each step."""

from collections.abc import Callable
import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.api import checks
from disco_rl.networks import agent_network


class Player:
  """Chooses actions; keeps the state of the agent's core between calls."""

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    spec: types.EnvironmentSpec,
    seed: int,
    encode: Callable[[types.PyTree], types.PyTree] = lambda observation: (
      observation
    ),
    decode: Callable[[np.ndarray], np.ndarray] = lambda action: action,
  ):
    """Compiles nothing yet.

    Args:
      network: The network of the agent.
      spec: The specification of its environment.
      seed: The seed of the actions that are sampled.
      encode: converts observations to those of the spec.
      decode: converts actions to those of the environment.
    """
    self._encode = encode
    self._decode = decode
    self._network = network
    self._spec = spec
    self.restart(seed)
    self._act = jax.jit(self._act_batch)

  def restart(self, seed: int) -> None:
    """Begins anew, with another seed of the actions that are sampled."""
    self._key = jax.random.key(seed)
    self._num_calls = 0
    self.reset_core()

  def reset_core(self) -> None:
    """Resets the core state of all episodes before the next call."""
    self._core_state: types.PyTree = None
    self._batch_size = 0

  def act(
    self,
    params: types.Params,
    observation: types.PyTree,
    greedy: bool,
    is_first: Any,
  ) -> Any:
    """See `Trainer.act`.

    Args:
      params: theta with a leading axis of one agent.
      observation: one or a batch.
      greedy: whether to take the most likely action.
      is_first: bool or [B], whether an episode begins.

    Returns:
      The action, or [B] of them, as the environment takes it.

    Raises:
      ValueError: the observation is of another structure or shape, or is not
        finite.
    """
    # An observation of another structure is named by the check below.
    with contextlib.suppress(KeyError, IndexError, TypeError):
      observation = self._encode(observation)
    is_batch = self._is_batch(observation)
    batch = jax.tree.map(
      lambda x, leaf: _as_batch(x, leaf, is_batch),
      observation,
      self._spec.observation,
    )
    checks.check_finite('observation', batch)
    size = len(jax.tree.leaves(batch)[0])
    is_first = np.broadcast_to(is_first, size)
    if size != self._batch_size:
      if self._batch_size and not is_first.all() and self._network_has_core():
        raise ValueError(
          f'There are {size} observations after {self._batch_size} in the call '
          'before: give is_first=True where other episodes begin.'
        )
      self._core_state = self._network.initial_state(size)
      self._batch_size = size
    self._num_calls += 1
    action, self._core_state = self._act(
      params,
      batch,
      self._core_state,
      is_first,
      greedy,
      self._key,
      self._num_calls,
    )
    decoded = self._decode(np.asarray(action))
    if is_batch:
      return decoded
    return int(decoded[0]) if decoded.ndim == 1 else decoded[0]

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
    core_state = jax.tree.map(
      lambda x: jnp.where(is_first[:, None], jnp.zeros_like(x), x), core_state
    )
    noise = jax.random.gumbel(
      jax.random.fold_in(key, num_calls),
      (is_first.shape[0], self._spec.num_actions),
    )
    _, action, core_state = actor.act(
      self._network,
      jax.tree.map(lambda x: x[0], params),
      observation,
      core_state,
      jnp.where(greedy, 0.0, noise),
    )
    return action, core_state

  def _network_has_core(self) -> bool:
    return bool(jax.tree.leaves(self._network.initial_state(1)))

  def _is_batch(self, observation: types.PyTree) -> bool:
    """Whether there is a leading axis; raises ValueError for other shapes."""
    specs = jax.tree.leaves(self._spec.observation)
    leaves = jax.tree.leaves(observation)
    is_batch = bool(leaves) and np.ndim(leaves[0]) == len(specs[0].shape) + 1
    leading = (len(leaves[0]),) if is_batch else ()
    checks.check_shapes(
      'observation',
      observation,
      self._spec.observation,
      leading,
      'one observation, or a batch with one leading axis',
    )
    return is_batch


def _as_batch(
  x: types.PyTree, spec: types.PyTree, is_batch: bool
) -> np.ndarray:
  with np.errstate(over='ignore'):  # What is infinite then is refused.
    array = np.asarray(x, spec.dtype)
  return array if is_batch else array[None]
