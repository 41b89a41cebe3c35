"""Single updates, for the user's own training loops and networks."""

import dataclasses
import functools
import typing
from typing import Protocol

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.agent import resolution
from disco_rl.api import rule_checks
from disco_rl.api import rules
from disco_rl.maths import action_masks
from disco_rl.networks import agent_network
from disco_rl.runtime import backend
from disco_rl.runtime import files
from disco_rl.training import checks
from disco_rl.update_rules import base


class Network(Protocol):
  """The functions of a network for learning; `AgentNetwork` has them."""

  def init(self, key: types.Array, /) -> types.Params:
    """Makes parameters with a PRNG key."""
    ...

  def unroll(
    self, params: types.Params, rollout: types.Rollout, /
  ) -> tuple[types.Outputs, types.Outputs]:
    """Computes all outputs for a rollout, and those of the taken actions.

    `disco_rl.Heads` makes them from embeddings; see `AgentNetwork.unroll`.
    """
    ...


@dataclasses.dataclass(frozen=True)
class _LegalNetwork:
  """A network whose policy takes only legal actions; see `action_masks`."""

  network: Network

  def init(self, key: types.Array) -> types.Params:
    """Implements `Network.init`."""
    return self.network.init(key)

  def unroll(
    self, params: types.Params, rollout: types.Rollout
  ) -> tuple[types.Outputs, types.Outputs]:
    """Implements `Network.unroll`."""
    legal = action_masks.find(rollout.observation)
    every, taken = (
      {**x, 'logits': action_masks.apply(x['logits'], legal)}
      for x in self.network.unroll(params, rollout)
    )
    return every, taken


class Learner:
  """Makes updates of an agent with rollouts from any source.

  ```
  learner = disco_rl.Learner(network, spec, disco_rl.load_rule('disco103'))
  state = learner.init(jax.random.key(0))
  while True:
    rollout = ...  # A `disco_rl.Rollout`, acted with state.params.
    state, metrics = learner.update(state, rollout)
  ```

  The methods are pure functions, and may be called within jax.jit, jax.vmap and
  jax.lax.scan. Within jax.shard_map over a mesh with an axis named `batch`,
  each device passes its own part of the trajectories, and the update is the
  same as for the whole batch.
  """

  def __init__(
    self,
    network: Network,
    spec: types.EnvironmentSpec,
    rule: files.PathLike | base.UpdateRule | rules.LoadedRule,
    *,
    learning_rate: float | None = None,
    optimizer: optax.GradientTransformation | None = None,
  ):
    """Checks the rule, without compiling anything.

    Args:
      network: The agent's network.
      spec: The shapes of observations and the number of actions.
      rule: An argument or a result of `disco_rl.load_rule`.
      learning_rate: The step size, by which Adam's clipped updates are scaled;
        None: the one that suits the rule, see `agent.resolution`.
      optimizer: An optax transformation instead of this Adam, such as
        `optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))`.

    Raises:
      ValueError: A method of a custom rule does not return what `UpdateRule`
        specifies, the learning rate is not valid, or an optimizer is also
        given. `load_rule` describes further errors, about the rule.
    """
    backend.check_settings()
    rule = rules.load_rule(rule)
    # What the card recommends is about loops of the package's own.
    updates = getattr(rule.rule, 'updates_per_rollout', 1)
    rule, config = resolution.resolve(
      rule,
      {'learning_rate': learning_rate, 'updates_per_rollout': updates},
      lambda _: spec,
    )
    if optimizer is None:
      optimizer = agent_lib.make_optimizer(config, config.learning_rate)
    elif learning_rate is not None:
      raise ValueError(
        f"learning_rate={learning_rate} is for the package's own Adam: set the "
        'one of your optimizer instead, and leave out learning_rate.'
      )
    rule_checks.check_rule(rule.rule, rule.params, spec)
    self._network = network
    self._spec = spec
    self._rule = rule
    # Learning only uses the methods of `Network`.
    full_network = typing.cast(
      agent_network.AgentNetwork, _LegalNetwork(network)
    )
    self._init = jax.jit(
      lambda key: learner.init(full_network.init(key), rule.rule, optimizer)
    )
    self._update = jax.jit(
      functools.partial(learner.update, full_network, rule.rule, optimizer)
    )
    self._gradient = jax.jit(
      functools.partial(learner.gradient, full_network, rule.rule)
    )
    self._checked: set[tuple[int, int]] = set()

  def init(self, key: types.Array) -> learner.LearnerState:
    """Makes the initial state of an agent; its parameters are `.params`."""
    return self._init(key)

  def update(
    self, state: learner.LearnerState, rollout: types.Rollout
  ) -> tuple[learner.LearnerState, types.Logs]:
    """Makes one update.

    Args:
      state: The state before the update, which remains valid.
      rollout: T transitions of B trajectories, as NumPy or JAX arrays. A
        program is compiled for each pair of T and B.

    Returns:
      The state after the update, and scalars to log.

    Raises:
      ValueError: A field of the rollout or an output of the network has a wrong
        shape or type, a reward is not finite, or an action is out of range or
        illegal. It is raised before anything is compiled. The check waits for
        rewards and actions on the device; within jax.jit, where they are
        unknown, they are not checked.
    """
    rollout = self._check(state, rollout)
    state, update = self._update(self._rule.params, state, rollout)
    return state, update.logs

  def gradient(
    self, state: learner.LearnerState, rollout: types.Rollout
  ) -> tuple[types.Params, types.PyTree, types.Logs]:
    """Computes the gradient of an update, for your own optimizer step.

    ```
    gradient, rule_state, metrics = learner.gradient(state, rollout)
    params, opt_state = ...  # Your step.
    state = dataclasses.replace(
      state, params=params, opt_state=opt_state, rule_state=rule_state
    )
    ```

    Args:
      state: The state before the update, whose `opt_state` is not used.
      rollout: The rollout, as in `update`.

    Returns:
      The gradient of the loss to be minimized, in the shapes of the parameters;
      the next state of the rule; and scalars to log.

    Raises:
      ValueError: The rollout is not valid, as in `update`.
    """
    rollout = self._check(state, rollout)
    found, rule_state = self._gradient(self._rule.params, state, rollout)
    return found.gradient, rule_state, found.logs

  def _check(
    self, state: learner.LearnerState, rollout: types.Rollout
  ) -> types.Rollout:
    """Checks a rollout and the network's outputs; converts to JAX arrays."""
    size = checks.check_rollout(rollout, self._spec)
    # Converts NumPy's 64 bits to JAX's 32 bits.
    rollout = jax.tree.map(jnp.asarray, rollout)
    if size not in self._checked:
      checks.check_outputs(
        jax.eval_shape(self._network.unroll, state.params, rollout),
        self._rule.output_spec(self._spec.num_actions),
        self._spec.num_actions,
        size,
      )
      self._checked.add(size)
    return rollout
