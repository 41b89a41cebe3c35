"""The agent's network: torso, policy, and the heads that its rule asks for."""

from collections.abc import Callable
import dataclasses
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import action_model
from disco_rl.networks import torsos

HEAD_INIT_STD = 1e-2


@dataclasses.dataclass(frozen=True)
class AgentNetworkConfig:
  """Sizes of an agent's network.

  Attributes:
    torso: widths of the torso's layers.
    action_model_lstm: size of the LSTM of the action model.
    action_model_head: width of the hidden layer of each of its heads.
  """

  torso: tuple[int, ...] = (512, 512)
  action_model_lstm: int = 128
  action_model_head: int = 128

  def __post_init__(self) -> None:
    widths = (*self.torso, self.action_model_lstm, self.action_model_head)
    if not all(isinstance(width, int) and width > 0 for width in widths):
      raise ValueError(
        f'torso={self.torso}, action_model_lstm={self.action_model_lstm} and '
        f'action_model_head={self.action_model_head} must be positive widths.'
      )


@dataclasses.dataclass(frozen=True)
class AgentNetwork:
  """An agent's network as pure functions.

  Attributes:
    init: key -> parameters.
    policy: (parameters, observation [...]) -> logits [..., A]; computes nothing
      else, for acting.
    unroll: (parameters, observation [T+1, B, ...], action [T+1, B]) -> outputs,
      taken. `outputs` holds [T+1, B, width] for `logits` and each head of the
      state, [T+1, B, A, width] for each head of the actions; `taken` is the
      same with the heads of the actions for the taken actions alone, at the
      steps that are learnt from, [T, B, width].
  """

  init: Callable[[types.Array], types.Params]
  policy: Callable[[types.Params, types.PyTree], types.Array]
  unroll: Callable[
    [types.Params, types.PyTree, types.Array],
    tuple[types.Outputs, types.Outputs],
  ]


class AgentNetworkModule(hk.Module):
  """See `AgentNetwork`."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    output_spec: types.OutputSpec,
    config: AgentNetworkConfig,
    name: str = 'agent',
  ):
    super().__init__(name)
    self._output_spec = output_spec
    self._torso = torsos.MLPTorso(environment_spec.observation, config.torso)
    head_init = hk.initializers.TruncatedNormal(HEAD_INIT_STD)
    self._state_heads = {
      name: hk.Linear(width, w_init=head_init, name=name)
      for name, width in {
        'logits': environment_spec.num_actions,
        **output_spec.state,
      }.items()
    }
    if output_spec.action:
      self._action_model = action_model.ActionModel(
        environment_spec.num_actions,
        output_spec.action,
        config.action_model_lstm,
        config.action_model_head,
      )

  def policy(self, observation: types.PyTree) -> types.Array:
    """Logits of the policy, [..., A]."""
    return self._state_heads['logits'](self._torso(observation))

  def unroll(
    self, observation: types.PyTree, action: types.Array
  ) -> tuple[types.Outputs, types.Outputs]:
    """All outputs, and those of the taken actions; see `AgentNetwork`."""
    batch_size = action.shape[1]
    # Over rows, not over time and batch: the products of the backward pass are
    # up to twice as fast on matrices.
    rows = lambda x: x.reshape(-1, *x.shape[2:])
    embedding = self._torso(jax.tree.map(rows, observation))
    outputs = {
      name: head(embedding) for name, head in self._state_heads.items()
    }
    every, taken = outputs, outputs
    if self._output_spec.action:
      for_all, for_taken = self._action_model(embedding, rows(action[:-1]))
      every, taken = {**outputs, **for_all}, {**outputs, **for_taken}
    return jax.tree.map(
      lambda x: x.reshape(-1, batch_size, *x.shape[1:]), (every, taken)
    )


def make(
  environment_spec: types.EnvironmentSpec,
  output_spec: types.OutputSpec,
  config: AgentNetworkConfig,
) -> AgentNetwork:
  """Builds the network of an agent.

  Args:
    environment_spec: observations and actions.
    output_spec: heads that the rule asks for.
    config: sizes.

  Returns:
    The network as pure functions.
  """

  def module() -> AgentNetworkModule:
    return AgentNetworkModule(environment_spec, output_spec, config)

  policy: Any = hk.without_apply_rng(
    hk.transform(lambda observation: module().policy(observation))
  )
  unroll: Any = hk.without_apply_rng(
    hk.transform(
      lambda observation, action: module().unroll(observation, action)
    )
  )

  def init(key: types.Array) -> types.Params:
    observation = jax.tree.map(
      lambda leaf: jnp.zeros((1, 1, *leaf.shape), leaf.dtype),
      environment_spec.observation,
    )
    return unroll.init(key, observation, jnp.zeros((1, 1), jnp.int32))

  return AgentNetwork(init=init, policy=policy.apply, unroll=unroll.apply)
