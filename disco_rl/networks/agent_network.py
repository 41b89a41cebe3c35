"""The agent's network: torso, core, policy, and the heads of its rule."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Annotated

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.networks import action_model
from disco_rl.networks import linear
from disco_rl.networks import lstm
from disco_rl.networks import observation_moments
from disco_rl.networks import torsos

HEAD_INIT_STD = 1e-2
DTYPES = ('float32', 'bfloat16')


@dataclasses.dataclass(frozen=True)
class AgentNetworkConfig(config_lib.Settings):
  """Sizes of an agent's network.

  Attributes:
    torso: function from observations to an embedding.
    core_lstm: size of an LSTM between the torso and the heads, for partially
      observed environments; 0: no LSTM.
    action_model_lstm: size of the LSTM of the action model.
    action_model_head: width of the hidden layer of each of its heads.
    normalize_observations: whether observations of floats are normalized, each
      entry by its running mean and standard deviation over the batches that the
      agent learned from, and clipped to [-10, 10]; pixels and codes are not.
    compute_dtype: precision of its computations, 'float32' or 'bfloat16'.
      Parameters and outputs are float32 in either case.
  """

  torso: torsos.TorsoConfig = torsos.TorsoConfig()
  core_lstm: config_lib.WidthOrZero = 0
  action_model_lstm: config_lib.Width = 128
  action_model_head: config_lib.Width = 128
  normalize_observations: bool = False
  compute_dtype: Annotated[str, config_lib.one_of(*DTYPES)] = 'float32'


@dataclasses.dataclass(frozen=True)
class AgentNetwork:
  """An agent's network as pure functions.

  Attributes:
    init: key -> parameters.
    initial_state: B -> state of the core before an episode, a tree of [B, ...];
      empty without a core.
    step: (parameters, observation [B, ...], core state [B, ...]) -> logits
      [B, A] and the next core state; for acting.
    policy: (parameters, rollout) -> logits [T+1, B, A].
    unroll: (parameters, rollout) -> outputs, taken. `outputs` has
      [T+1, B, width] for `logits` and each head of the state,
      [T+1, B, A, width] for each head of the actions; `taken` is the same,
      except that heads of the actions are only for the taken actions of the
      first T steps, [T, B, width].
  """

  init: Callable[[types.Array], types.Params]
  initial_state: Callable[[int], types.PyTree]
  step: Callable[
    [types.Params, types.PyTree, types.PyTree],
    tuple[types.Array, types.PyTree],
  ]
  policy: Callable[[types.Params, types.Rollout], types.Array]
  unroll: Callable[
    [types.Params, types.Rollout], tuple[types.Outputs, types.Outputs]
  ]


class AgentNetworkModule(hk.Module):
  """The Haiku module of `AgentNetwork`."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    output_spec: types.OutputSpec,
    config: AgentNetworkConfig,
    dtype: types.DType,
    name: str = 'agent',
  ):
    super().__init__(name)
    self._output_spec = output_spec
    self._dtype = dtype
    self._torso = torsos.TorsoModule(config.torso)
    self._core = (
      lstm.SequenceLSTM(config.core_lstm, name='core')
      if config.core_lstm
      else None
    )
    head_init = hk.initializers.TruncatedNormal(HEAD_INIT_STD)
    self._state_heads = {
      name: linear.LinearWeights(width, head_init, name)
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

  def step(
    self, observation: types.PyTree, core_state: types.PyTree
  ) -> tuple[types.Array, types.PyTree]:
    """Computes logits of the policy [B, A], and the next state of the core."""
    embedding = self._torso(observation, self._dtype)
    if self._core is not None:
      reset = jnp.zeros((1, embedding.shape[0]), bool)
      embedding, core_state = self._core(embedding[None], reset, core_state)
      embedding = embedding[0]
    outputs = self._predict(embedding, ('logits',), observation)
    return outputs['logits'], core_state

  def policy(self, rollout: types.Rollout) -> types.Array:
    """Computes logits of the policy, [T+1, B, A]."""
    logits = self._predict(
      self._embed(rollout), ('logits',), rollout.observation
    )['logits']
    return logits.reshape(*rollout.action.shape, -1)

  def unroll(
    self, rollout: types.Rollout
  ) -> tuple[types.Outputs, types.Outputs]:
    """Computes all outputs, and those of taken actions; see `AgentNetwork`."""
    batch_size = rollout.action.shape[1]
    embedding = self._embed(rollout)
    outputs = self._predict(
      embedding, tuple(self._state_heads), rollout.observation
    )
    every, taken = outputs, outputs
    if self._output_spec.action:
      for_all, for_taken = self._action_model(
        embedding, rollout.action[:-1].reshape(-1)
      )
      every, taken = {**outputs, **for_all}, {**outputs, **for_taken}
    return jax.tree.map(
      lambda x: x.reshape(-1, batch_size, *x.shape[1:]), (every, taken)
    )

  def _predict(
    self,
    embedding: types.Array,
    names: Sequence[str],
    observation: types.PyTree,
  ) -> types.Outputs:
    """Computes the heads of the state by one product, and masks the policy.

    Args:
      embedding: The embeddings, [N, D].
      names: The names of the heads, including 'logits'.
      observation: The N observations, on one axis or on two.
    """
    layers = [self._state_heads[name] for name in names]
    w, b = linear.concatenate(layers, embedding.shape[-1], embedding.dtype)
    outputs = dict(zip(names, linear.split(layers, embedding @ w + b)))
    legal = action_masks.find(observation)
    if legal is not None:
      legal = legal.reshape(outputs['logits'].shape)
    return outputs | {'logits': action_masks.apply(outputs['logits'], legal)}

  def _embed(self, rollout: types.Rollout) -> types.Array:
    """Embeds all observations, [(T+1) * B, D].

    Time and batch are one axis, because products in the backward pass are up to
    twice as fast on matrices.
    """
    leaves = jax.tree.leaves(action_masks.without(rollout.observation))
    if not leaves or not all(x.size for x in leaves):
      raise ValueError(
        'Observations have no numbers, or one of their arrays is empty, with a '
        'shape such as [0]: let the environment observe something.'
      )
    rows = lambda x: x.reshape(-1, *x.shape[2:])
    embedding = self._torso(
      jax.tree.map(rows, rollout.observation), self._dtype
    )
    if self._core is None:
      return embedding
    state = jax.tree.map(lambda x: x[0], rollout.core_state)
    by_time = embedding.reshape(*rollout.action.shape, -1)
    return rows(self._core(by_time, episode_starts(rollout), state)[0])


def episode_starts(rollout: types.Rollout) -> types.Array:
  """Returns before which observations the core is reset, [T+1, B] bool.

  These are the first ones of episodes: after terminations, and after the masked
  transitions that follow a time limit; but not at time 0, where the stored core
  state has been reset already.
  """
  is_over = has_ended(rollout.is_terminal, rollout.mask)
  return jnp.pad(is_over, ((1, 0), (0, 0)))


def has_ended(is_terminal: types.Array, mask: types.Array) -> types.Array:
  """Returns whether a transition leads to another episode."""
  return jnp.logical_or(is_terminal, jnp.logical_not(mask))


def make(
  environment_spec: types.EnvironmentSpec,
  output_spec: types.OutputSpec,
  config: AgentNetworkConfig,
) -> AgentNetwork:
  """Builds an agent's network, with the heads that its rule requires."""
  dtype = jnp.dtype(config.compute_dtype)

  def transform(method: str) -> hk.Transformed:
    """Makes the Haiku functions of a method of the module."""

    def function(
      *arguments: types.PyTree, dtype: types.DType = dtype
    ) -> types.PyTree:
      module = AgentNetworkModule(environment_spec, output_spec, config, dtype)
      if dtype == jnp.float32:
        return getattr(module, method)(*arguments)
      with hk.custom_getter(lambda get, value, _: get(cast(value, dtype))):
        return getattr(module, method)(*arguments)

    return hk.without_apply_rng(hk.transform(function))

  def apply(method: str) -> Callable[..., types.PyTree]:
    """Makes a function with parameters and outputs in float32."""
    transformed = transform(method)
    if dtype == jnp.float32:
      return transformed.apply
    # The sum of the gradients of a torso's chunks should not be rounded for
    # each chunk: their parameters are cast within the loop.
    before = jnp.float32 if config.torso.chunk_size else dtype
    return lambda params, *arguments: cast(
      transformed.apply(cast(params, before), *arguments), jnp.float32
    )

  def initial_state(batch_size: int) -> types.PyTree:
    if not config.core_lstm:
      return ()
    return lstm.zero_state(batch_size, config.core_lstm)

  def init(key: types.Array) -> types.Params:
    rollout = types.empty_rollout(
      environment_spec, initial_state(1), length=0, batch_size=1
    )
    return transform('unroll').init(key, rollout, dtype=jnp.float32)

  network = AgentNetwork(
    init=init,
    initial_state=initial_state,
    step=apply('step'),
    policy=apply('policy'),
    unroll=apply('unroll'),
  )
  if config.normalize_observations:
    return _normalizing(network, environment_spec)
  return network


def _normalizing(
  network: AgentNetwork, environment_spec: types.EnvironmentSpec
) -> AgentNetwork:
  """Makes a network whose observations are normalized by statistics."""

  def init(key: types.Array) -> types.Params:
    moments = observation_moments.init(environment_spec)
    return {**network.init(key), **moments}

  def step(
    params: types.Params, observation: types.PyTree, core_state: types.PyTree
  ) -> tuple[types.Array, types.PyTree]:
    observation = observation_moments.normalize(params, observation)
    return network.step(params, observation, core_state)

  def normalized(params: types.Params, rollout: types.Rollout) -> types.Rollout:
    observation = observation_moments.normalize(params, rollout.observation)
    return dataclasses.replace(rollout, observation=observation)

  return dataclasses.replace(
    network,
    init=init,
    step=step,
    policy=lambda params, rollout: network.policy(
      params, normalized(params, rollout)
    ),
    unroll=lambda params, rollout: network.unroll(
      params, normalized(params, rollout)
    ),
  )


def cast(tree: types.PyTree, dtype: types.DType) -> types.PyTree:
  """Converts the floats of a tree to another type."""
  return jax.tree.map(
    lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x,
    tree,
  )
