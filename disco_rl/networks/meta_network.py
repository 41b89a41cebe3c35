"""The meta-network: from an agent's rollout to its targets.

An LSTM runs backwards along the trajectory, over features that do not depend on
the number of actions or on the environment; a second one, the meta-RNN, takes
one step per update and keeps its state for the agent's lifetime. Module names
are those of the published weights. Variants (Fig. 3, Extended Data Fig. 3) lack
some modules and the inputs that depend on them.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.maths import categorical
from disco_rl.maths import masked
from disco_rl.networks import linear
from disco_rl.networks import lstm
from disco_rl.networks import meta_features
from disco_rl.networks import transformer

HEAD_INIT_STD = 0.3
GATE_INIT_STD = 1.0


@dataclasses.dataclass(frozen=True)
class MetaNetworkConfig(config_lib.Settings, prefix='rule_'):
  """Sizes of the meta-network; the defaults are those of Disco103.

  Attributes:
    prediction_size: Y, width of the predictions y and z; 0: no predictions.
    prediction_embedding: widths of the layers of E_y and E_z.
    policy_channels: channels of the blocks of the policy embedding.
    policy_target_channels: channels of the blocks that emit pi_hat; the first
      block reads the LSTM.
    lstm_size: width of the LSTM that runs backwards along the trajectory.
    meta_rnn_input_size: width of the layer in front of the meta-RNN.
    meta_rnn_size: width of the LSTM whose state lasts for the agent's lifetime;
      0: no LSTM, and targets depend only on the newest batch.
    has_q: whether agents predict action values, which the network reads.
    transformer_layers: blocks of a transformer instead of the backward LSTM, of
      the same width; 0: the LSTM.
    transformer_heads: heads of its attention, a divisor of that width.
  """

  prediction_size: config_lib.CountOrZero = 600
  prediction_embedding: config_lib.Widths = (16, 1)
  policy_channels: config_lib.Widths = (16, 2)
  policy_target_channels: config_lib.Widths = (16,)
  lstm_size: config_lib.Count = 256
  meta_rnn_input_size: config_lib.Count = 16
  meta_rnn_size: config_lib.CountOrZero = 128
  has_q: bool = True
  transformer_layers: config_lib.CountOrZero = 0
  transformer_heads: config_lib.Count = 4

  def conflicts(self) -> Iterator[str]:
    """Yields errors about missing layers and attention heads."""
    if tuple(self.prediction_embedding[-1:]) != (1,):
      yield (
        f'rule_prediction_embedding={self.prediction_embedding} must end in a '
        'layer of one unit, the embedded prediction.'
      )
    if not self.policy_target_channels:
      yield (
        'rule_policy_target_channels=() must name at least one block, because '
        'the first block combines each action with the LSTM.'
      )
    if self.transformer_layers and self.lstm_size % self.transformer_heads:
      yield (
        f'rule_lstm_size={self.lstm_size} must be a multiple of '
        f'rule_transformer_heads={self.transformer_heads}, which share it.'
      )


@types.record
class MetaOutputs:
  """Targets as logits, and an embedding for analysis.

  Attributes:
    pi: [T, B, A] pi_hat, with only legal actions.
    y: [T, B, Y] y_hat; None without y and z.
    z: [T, B, Y] z_hat, for the taken action; None without them.
    embedding: [T, B, 1] of the trajectory, an input of the meta-RNN; None
      without it.
  """

  pi: types.Array
  y: types.Array | None
  z: types.Array | None
  embedding: types.Array | None


class PredictionEmbedding(hk.Module):
  """E_y or E_z: an MLP from softmax(logits) to one number.

  Its first layer is evaluated by `embed`, together with those of others.
  """

  def __init__(self, widths: Sequence[int], name: str):
    super().__init__(name)
    self.first = linear.LinearWeights(widths[0], name='linear_0')
    self._rest = [
      hk.Linear(width, name=f'linear_{i}')
      for i, width in enumerate(widths[1:], start=1)
    ]

  def __call__(self, x: types.Array) -> types.Array:
    """Applies the other layers, [..., widths[0]] -> [...]."""
    for layer in self._rest:
      x = layer(jax.nn.relu(x))
    return x[..., 0]


def embed(
  embeddings: Sequence[PredictionEmbedding], logits: types.Array
) -> list[types.Array]:
  """Applies embeddings to predictions, by one product; [..., Y] -> [...] each.

  Predictions are the largest inputs of the meta-network.
  """
  layers = [embedding.first for embedding in embeddings]
  w, b = linear.concatenate(layers, logits.shape[-1], logits.dtype)
  parts = linear.split(layers, categorical.expectation(logits, w) + b)
  return [embedding(part) for embedding, part in zip(embeddings, parts)]


def embed_predictions(
  inputs: meta_features.MetaInputs,
  embeddings: Sequence[tuple[PredictionEmbedding, PredictionEmbedding]],
) -> Sequence[meta_features.EmbeddedPredictions | None]:
  """Embeds y and z, online and target, by each pair of E_y and E_z.

  Returns:
    The result for each pair; None if agents have no y and z.
  """
  if 'y' not in inputs.outputs:
    return [None] * len(embeddings)
  embeddings_y, embeddings_z = zip(*embeddings)
  embedded = zip(
    embed(embeddings_y, inputs.outputs['y']),
    embed(embeddings_y, inputs.target_outputs['y']),
    embed(embeddings_z, inputs.outputs['z']),
    embed(embeddings_z, inputs.target_outputs['z']),
  )
  return [meta_features.EmbeddedPredictions(*four) for four in embedded]


class ActionBlock(hk.Module):
  """One block over the action axis: [channels, mean] -> Conv1D of 1 -> ReLU."""

  def __init__(self, channels: int, name: str = 'conv1_d'):
    super().__init__(name)
    self._channels = channels

  def __call__(
    self,
    x: types.Array,
    legal: types.Array | None,
    shared: types.Array | None = None,
  ) -> types.Array:
    """Mixes each action's channels with their mean over actions.

    Args:
      x: [..., A, C].
      legal: The actions in the mean, [..., A] bool; None: all.
      shared: Further channels, [..., S], the same for every action; they come
        first.

    Returns:
      [..., A, channels].
    """
    num_shared = 0 if shared is None else shared.shape[-1]
    size = num_shared + x.shape[-1]
    init = hk.initializers.TruncatedNormal((2 * size) ** -0.5)
    w = hk.get_parameter('w', (1, 2 * size, self._channels), x.dtype, init)
    b = hk.get_parameter('b', (self._channels,), x.dtype, jnp.zeros)
    w_own, w_mean = w[0, :size], w[0, size:]
    # Inputs that all actions share are multiplied only once.
    common = _mean_over_actions(x, legal) @ w_mean[num_shared:] + b
    if shared is not None:
      common += shared @ (w_own + w_mean)[:num_shared]
    return jax.nn.relu(x @ w_own[num_shared:] + common[..., None, :])


def _mean_over_actions(
  x: types.Array, legal: types.Array | None
) -> types.Array:
  """[..., A, C], and [..., A] -> [..., C]."""
  if legal is not None:
    legal = legal[..., None]
  return action_masks.mean(x, legal, axis=-2)


class ActionNet(hk.Module):
  """A sequence of blocks over the action axis."""

  def __init__(self, channels: Sequence[int], name: str):
    super().__init__(name)
    self._channels = channels

  def __call__(
    self,
    x: types.Array,
    legal: types.Array | None,
    shared: types.Array | None = None,
  ) -> types.Array:
    """Applies blocks, [..., A, C] and [..., S] -> [..., A, channels]."""
    for channels in self._channels:
      x, shared = ActionBlock(channels)(x, legal, shared), None
    return x


def _features(
  inputs: meta_features.PreparedInputs, config: MetaNetworkConfig
) -> tuple[types.Array, types.Array]:
  """Computes features of the steps, and the policy embedding.

  Returns:
    The features [T, B, F + 2 C]: the F `meta_features.step_features`, then the
    mean of the policy embedding over actions, and that of the taken action; and
    the policy embedding [T, B, A, C], with C = 2 channels by default.
  """
  legal = meta_features.legal_actions(inputs)
  policy_embedding = ActionNet(config.policy_channels, name='sequential')(
    meta_features.action_channels(inputs), legal
  )
  action = inputs.raw.rollout.action[:-1, :, None, None]
  taken = jnp.take_along_axis(policy_embedding, action, axis=-2)[..., 0, :]
  step_features = jnp.concatenate(
    [
      meta_features.step_features(inputs),
      _mean_over_actions(policy_embedding, legal),
      taken,
    ],
    axis=-1,
  )
  return step_features, policy_embedding


def _prediction_embeddings(
  config: MetaNetworkConfig,
) -> tuple[PredictionEmbedding, PredictionEmbedding]:
  """Makes E_y and E_z."""
  widths = config.prediction_embedding
  return (
    PredictionEmbedding(widths, name='mlp'),
    PredictionEmbedding(widths, name='mlp_1'),
  )


def _along_trajectory(
  config: MetaNetworkConfig, x: types.Array, rollout: types.Rollout
) -> types.Array:
  """Runs backwards, [T, B, F] -> [T, B, lstm_size], within episodes.

  A step sees the rest of its episode. A time limit looks like the end of a
  rollout: steps do not see the masked transitions after them.
  """
  is_end = rollout.is_terminal | ~masked.next_is_real(rollout.mask)
  if not config.transformer_layers:
    return lstm.SequenceLSTM(config.lstm_size, reverse=True)(x, is_end)[0]
  return transformer.BackwardTransformer(
    config.lstm_size, config.transformer_layers, config.transformer_heads
  )(x, is_end)


class MetaRNN(hk.Module):
  """Summarizes the agent's updates over its lifetime."""

  def __init__(self, config: MetaNetworkConfig, name: str = 'meta_lstm'):
    super().__init__(name)
    self._config = config

  @hk.name_like('unroll')
  def prediction_embeddings(
    self,
  ) -> tuple[PredictionEmbedding, PredictionEmbedding]:
    """Makes its own E_y and E_z."""
    return _prediction_embeddings(self._config)

  def unroll(
    self,
    inputs: meta_features.PreparedInputs,
    embedding: types.Array,
    y_hat: types.Array | None,
    state: hk.LSTMState,
  ) -> hk.LSTMState:
    """Takes one step, on the mean over real transitions of the batch.

    Args:
      inputs: The rollout, with predictions by its own embeddings.
      embedding: The meta-network's embedding of the trajectory, [T, B, 1].
      y_hat: The target of y by its own embedding, [T, B]; None without y and z.
      state: The state, each [meta_rnn_size].

    Returns:
      The next state.
    """
    config = self._config
    columns = [_features(inputs, config)[0], embedding]
    if y_hat is not None:
      columns.append(y_hat[..., None])
    x = jnp.concatenate(columns, axis=-1)
    x = hk.nets.MLP([config.meta_rnn_input_size], name='mlp_2')(x)
    x = masked.mean(x, inputs.raw.rollout.mask)
    _, state = hk.LSTM(config.meta_rnn_size, name='lstm')(x, state)
    return state


class MetaNetwork(hk.Module):
  """The meta-network; see the module's docstring."""

  def __init__(self, config: MetaNetworkConfig, name: str = 'lstm'):
    super().__init__(name)
    self._config = config
    self._meta_rnn = MetaRNN(config)

  def __call__(
    self, inputs: meta_features.MetaInputs, state: hk.LSTMState | None
  ) -> tuple[MetaOutputs, hk.LSTMState | None]:
    """Computes targets for one update of an agent.

    Args:
      inputs: The rollout, the agent's outputs, and Retrace estimates.
      state: The state of the meta-RNN before this update, each [meta_rnn_size];
        None without it.

    Returns:
      Targets and the next state of the meta-RNN.
    """
    config = self._config
    embeddings = [_prediction_embeddings(config)]
    if state is not None:
      embeddings.append(self._meta_rnn.prediction_embeddings())
    prepared = [
      meta_features.prepare(inputs, embedded)
      for embedded in embed_predictions(inputs, embeddings)
    ]
    step_features, policy_embedding = _features(prepared[0], config)
    x = _along_trajectory(config, step_features, inputs.rollout)
    if state is not None:
      gate_init = hk.initializers.TruncatedNormal(GATE_INIT_STD)
      gate = hk.Linear(config.lstm_size, w_init=gate_init, name='linear')
      x = x * gate(state.hidden)

    head_init = hk.initializers.TruncatedNormal(HEAD_INIT_STD)
    head = lambda size, name: hk.Linear(size, w_init=head_init, name=name)
    embedding = y_hat = z_hat = embedded_y_hat = None
    if state is not None:
      embedding = head(1, 'linear_1')(x)
    if config.prediction_size:
      y_hat = head(config.prediction_size, 'linear_2')(x)
      z_hat = head(config.prediction_size, 'linear_3')(x)
    legal = meta_features.legal_actions(prepared[0])
    per_action = ActionNet(config.policy_target_channels, name='sequential_1')(
      policy_embedding, legal, shared=x
    )
    pi_hat = action_masks.apply(head(1, 'linear_4')(per_action)[..., 0], legal)

    if state is not None and embedding is not None:  # Both or neither.
      if y_hat is not None:
        (embedded_y_hat,) = embed([embeddings[1][0]], y_hat)
      state = self._meta_rnn.unroll(
        prepared[1], embedding, embedded_y_hat, state
      )
    outputs = MetaOutputs(pi=pi_hat, y=y_hat, z=z_hat, embedding=embedding)
    return outputs, state


def transform(config: MetaNetworkConfig) -> hk.Transformed:
  """Makes the meta-network as pure functions.

  They are init(key, inputs, state), and apply(eta, inputs, state), which
  returns the result of `MetaNetwork.__call__`.
  """
  return hk.without_apply_rng(
    hk.transform(lambda inputs, state: MetaNetwork(config)(inputs, state))
  )


def initial_state(config: MetaNetworkConfig) -> hk.LSTMState | None:
  """Makes the initial state of the meta-RNN; None without it."""
  if not config.meta_rnn_size:
    return None
  zeros = jnp.zeros((config.meta_rnn_size,))
  return hk.LSTMState(hidden=zeros, cell=zeros)


def init(key: types.Array, config: MetaNetworkConfig) -> types.Params:
  """Makes random parameters, whose shapes do not depend on the actions."""

  @jax.jit  # Otherwise each operation is compiled separately.
  def draw(key: types.Array) -> types.Params:
    inputs = meta_features.zeros(config.prediction_size, config.has_q)
    return transform(config).init(key, inputs, initial_state(config))

  return draw(key)


def parameter_shapes(config: MetaNetworkConfig) -> dict[str, tuple[int, ...]]:
  """Returns shapes of parameters by `module/parameter`, as in rule files."""
  # Makes no array: a CPU may have to be divided into devices first.
  params = jax.eval_shape(lambda: init(jax.random.key(0), config))
  return {
    f'{module}/{name}': value.shape
    for module, leaves in params.items()
    for name, value in leaves.items()
  }
