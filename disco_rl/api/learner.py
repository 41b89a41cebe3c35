"""Single updates, for a training loop and a network of the user's own."""

from collections.abc import Callable
import functools
import typing
from typing import Protocol

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.api import checks
from disco_rl.api import rule_checks
from disco_rl.api import rules
from disco_rl.maths import optimizers
from disco_rl.networks import agent_network
from disco_rl.update_rules import base


class Network(Protocol):
  """The functions of a network that learning uses; `AgentNetwork` has them."""

  @property
  def init(self) -> Callable[[types.Array], types.Params]:
    """Key -> parameters."""
    ...

  @property
  def unroll(
    self,
  ) -> Callable[
    [types.Params, types.Rollout], tuple[types.Outputs, types.Outputs]
  ]:
    """(parameters, rollout) -> outputs, taken; see `AgentNetwork.unroll`.

    `disco_rl.Heads` makes them from embeddings.
    """
    ...


class Learner:
  """Makes updates of an agent from rollouts of any source.

  ```
  learner = disco_rl.Learner(network, spec, disco_rl.load_rule('disco103'))
  state = learner.init(jax.random.key(0))
  while True:
    rollout = ...  # A `disco_rl.Rollout`, acted with state.params.
    state, metrics = learner.update(state, rollout)
  ```

  Both methods are pure functions, and may be called within jax.jit, jax.vmap
  and jax.lax.scan.
  """

  def __init__(
    self,
    network: Network,
    spec: types.EnvironmentSpec,
    rule: str | base.UpdateRule | rules.LoadedRule,
    *,
    learning_rate: float = 3e-4,
    max_abs_update: float = 1.0,
  ):
    """Checks the rule; compiles nothing.

    Args:
      network: of the agent.
      spec: of observations and actions.
      rule: as `disco_rl.load_rule` takes or returns it.
      learning_rate: of Adam.
      max_abs_update: bound of each entry of Adam's update, before the step
        size.

    Raises:
      ValueError: a method of a rule of your own returns something else than
        `UpdateRule` states.
    """
    rule = rules.load_rule(rule)
    rule_checks.check_rule(rule.rule, rule.params, spec)
    self._network = network
    self._spec = spec
    self._rule = rule
    # Learning uses no more of a network than `Network` has.
    full_network = typing.cast(agent_network.AgentNetwork, network)
    optimizer = optimizers.agent_optimizer(learning_rate, max_abs_update)
    self._init = jax.jit(
      lambda key: learner.init(key, full_network, rule.rule, optimizer)
    )
    self._update = jax.jit(
      functools.partial(learner.update, full_network, rule.rule, optimizer)
    )
    self._checked: set[tuple[int, int]] = set()

  def init(self, key: types.Array) -> learner.LearnerState:
    """The initial state of an agent; its parameters are `.params`."""
    return self._init(key)

  def update(
    self, state: learner.LearnerState, rollout: types.Rollout
  ) -> tuple[learner.LearnerState, types.Logs]:
    """Makes one update.

    Args:
      state: before the update; it stays valid.
      rollout: T transitions of B trajectories, as NumPy or JAX arrays. A
        program is compiled for each pair of T and B.

    Returns:
      The state after the update, and scalars to log.

    Raises:
      ValueError: a field of the rollout or an output of the network has another
        shape or type than required, a reward is not finite, or an action is out
        of range; raised before anything is compiled. Rewards and actions on the
        device are waited for to check them; within jax.jit, where they are not
        known, they are not checked.
    """
    size = checks.check_rollout(rollout, self._spec)
    # Converts NumPy's 64 bits to JAX's 32.
    rollout = jax.tree.map(jnp.asarray, rollout)
    if size not in self._checked:
      checks.check_outputs(
        jax.eval_shape(self._network.unroll, state.params, rollout),
        self._rule.output_spec(self._spec.num_actions),
        self._spec.num_actions,
        size,
      )
      self._checked.add(size)
    state, update = self._update(self._rule.params, state, rollout)
    return state, update.logs
