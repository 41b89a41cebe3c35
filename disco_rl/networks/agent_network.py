"""The agent's network: torso, core, policy, and the heads of its rule."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Annotated
from typing import NamedTuple

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
    separate_torsos: whether the policy has a torso and a core of its own, and
      all other heads of the rule, such as the value, a second one of the same
      sizes; otherwise they share one.
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
  separate_torsos: bool = False
  action_model_lstm: config_lib.Width = 128
  action_model_head: config_lib.Width = 128
  normalize_observations: bool = False
  compute_dtype: Annotated[str, config_lib.one_of(*DTYPES)] = 'float32'


@dataclasses.dataclass(frozen=True)
class AgentNetwork:
  """An agent's network as pure functions.

  Attributes:
    init: key -> parameters.
    initial_state: B -> state of the cores before an episode, a tree of
      [B, ...]; empty without a core.
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


class _Encoder(NamedTuple):
  """A torso, and a core or None, which encode observations for some heads."""

  torso: torsos.TorsoModule
  core: lstm.SequenceLSTM | None


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
    # Of the policy, and of the other heads: one and the same, or two.
    self._encoders = [self._encoder(config)]
    if config.separate_torsos:
      self._encoders.append(self._encoder(config, 'second_'))
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

  @hk.transparent
  def _encoder(self, config: AgentNetworkConfig, prefix: str = '') -> _Encoder:
    torso = torsos.TorsoModule(config.torso, f'{prefix}torso')
    if not config.core_lstm:
      return _Encoder(torso, None)
    core = lstm.SequenceLSTM(config.core_lstm, name=f'{prefix}core')
    return _Encoder(torso, core)

  def step(
    self, observation: types.PyTree, core_state: types.PyTree
  ) -> tuple[types.Array, types.PyTree]:
    """Computes logits of the policy [B, A], and the next state of the cores."""
    # Without cores the second torso has no part in acting.
    if not jax.tree.leaves(core_state):
      embedding = self._encoders[0].torso(observation, self._dtype)
    else:
      embedding, core_state = self._step_cores(observation, core_state)
    outputs = self._predict(embedding, ('logits',), observation)
    return outputs['logits'], core_state

  def _step_cores(
    self, observation: types.PyTree, core_state: types.PyTree
  ) -> tuple[types.Array, types.PyTree]:
    """Returns the policy's embedding [B, D], and the next states of cores."""
    embeddings, states = [], []
    before = self._states(core_state)
    for (torso, core), state in zip(self._encoders, before, strict=True):
      assert core is not None
      embedding = torso(observation, self._dtype)
      reset = jnp.zeros((1, embedding.shape[0]), bool)
      embedding, state = core(embedding[None], reset, state)
      embeddings.append(embedding[0])
      states.append(state)
    return embeddings[0], tuple(states) if len(states) > 1 else states[0]

  def _states(self, core_state: types.PyTree) -> Sequence[types.PyTree]:
    """Returns the states of the cores of all encoders."""
    return [core_state] if len(self._encoders) == 1 else core_state

  def policy(self, rollout: types.Rollout) -> types.Array:
    """Computes logits of the policy, [T+1, B, A]."""
    logits = self._predict(
      self._embed(rollout, 0), ('logits',), rollout.observation
    )['logits']
    return logits.reshape(*rollout.action.shape, -1)

  def unroll(
    self, rollout: types.Rollout
  ) -> tuple[types.Outputs, types.Outputs]:
    """Computes all outputs, and those of taken actions; see `AgentNetwork`."""
    batch_size = rollout.action.shape[1]
    embedding = self._embed(rollout, 0)
    if len(self._encoders) == 1:
      outputs = self._predict(
        embedding, tuple(self._state_heads), rollout.observation
      )
    else:
      outputs = self._predict(embedding, ('logits',), rollout.observation)
      embedding = self._embed(rollout, 1)
      others = [name for name in self._state_heads if name != 'logits']
      outputs = {**outputs, **self._heads(embedding, others)}
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
    outputs = self._heads(embedding, names)
    legal = action_masks.find(observation)
    if legal is not None:
      legal = legal.reshape(outputs['logits'].shape)
    return outputs | {'logits': action_masks.apply(outputs['logits'], legal)}

  @hk.transparent
  def _heads(
    self, embedding: types.Array, names: Sequence[str]
  ) -> dict[str, types.Array]:
    """Computes heads of the state by one product, without the mask."""
    if not names:
      return {}
    layers = [self._state_heads[name] for name in names]
    w, b = linear.concatenate(layers, embedding.shape[-1], embedding.dtype)
    return dict(zip(names, linear.split(layers, embedding @ w + b)))

  def _embed(self, rollout: types.Rollout, which: int) -> types.Array:
    """Embeds all observations by one of the encoders, [(T+1) * B, D].

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
    torso, core = self._encoders[which]
    embedding = torso(jax.tree.map(rows, rollout.observation), self._dtype)
    if core is None:
      return embedding
    first = jax.tree.map(lambda x: x[0], rollout.core_state)
    state = self._states(first)[which]
    by_time = embedding.reshape(*rollout.action.shape, -1)
    return rows(core(by_time, episode_starts(rollout), state)[0])


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
  """Builds an agent's network, with the heads that its rule requires.

  Raises:
    ValueError: No head would use the second of separate torsos.
  """
  if config.separate_torsos and not {**output_spec.state, **output_spec.action}:
    raise ValueError(
      'separate_torsos=True has no meaning for a rule whose only output is the '
      'policy: leave it out.'
    )
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
    state = lstm.zero_state(batch_size, config.core_lstm)
    return (state, state) if config.separate_torsos else state

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
