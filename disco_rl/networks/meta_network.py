"""The meta-network: from an agent's rollout to the targets it moves towards.

An LSTM runs backwards along the trajectory, over features that do not depend on
the number of actions or on the environment; a second one, the meta-RNN, takes
one step per update and keeps its state for the agent's lifetime. Module names
are those of the published weights. Variants (Fig. 3, Extended Data Fig. 3) lack
some of the modules, and the inputs that are made from what they lack.
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
from disco_rl.networks import meta_features
from disco_rl.networks.lstm import SequenceLSTM
from disco_rl.networks.transformer import BackwardTransformer

HEAD_INIT_STD = 0.3
GATE_INIT_STD = 1.0


@dataclasses.dataclass(frozen=True)
class MetaNetworkConfig(config_lib.Settings, prefix='rule_'):
  """Sizes of the meta-network; the defaults are those of Disco103.

  Attributes:
    prediction_size: Y, width of the predictions y and z; 0: there are none.
    prediction_embedding: widths of the layers of E_y and E_z.
    policy_channels: channels of the blocks of the policy embedding.
    policy_target_channels: channels of the blocks that emit pi_hat.
    lstm_size: width of the LSTM that runs backwards along the trajectory.
    meta_rnn_input_size: width of the layer in front of the meta-RNN.
    meta_rnn_size: width of the LSTM whose state lasts for the agent's lifetime;
      0: there is none, and targets depend on the newest batch alone.
    has_q: whether agents predict action values, and the network reads them.
    transformer_layers: blocks of a transformer in place of the backward LSTM,
      of its width; 0: the LSTM.
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
    """The embedded prediction is one number; heads are of equal widths."""
    if tuple(self.prediction_embedding[-1:]) != (1,):
      yield (
        f'rule_prediction_embedding={self.prediction_embedding} must end in a '
        'layer of one unit, the embedded prediction.'
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
    pi: [T, B, A] pi_hat, with legal actions alone.
    y: [T, B, Y] y_hat; None without y and z.
    z: [T, B, Y] z_hat, for the taken action; None likewise.
    embedding: [T, B, 1] of the trajectory, an input of the meta-RNN; None
      without it.
  """

  pi: types.Array
  y: types.Array | None
  z: types.Array | None
  embedding: types.Array | None


class PredictionEmbedding(hk.Module):
  """E_y or E_z: an MLP from softmax(logits) to one number.

  Its first layer is evaluated by `embed`, together with that of others.
  """

  def __init__(self, widths: Sequence[int], name: str):
    super().__init__(name)
    self.first = linear.LinearWeights(widths[0], name='linear_0')
    self._rest = [
      hk.Linear(width, name=f'linear_{i}')
      for i, width in enumerate(widths[1:], start=1)
    ]

  def __call__(self, x: types.Array) -> types.Array:
    """From the first layer's output [..., widths[0]] to [...]."""
    for layer in self._rest:
      x = layer(jax.nn.relu(x))
    return x[..., 0]


def embed(
  embeddings: Sequence[PredictionEmbedding], logits: types.Array
) -> list[types.Array]:
  """Applies several embeddings to predictions, by one matrix product.

  Args:
    embeddings: E_y or E_z, of one network or of several.
    logits: [..., Y]; these are the largest inputs of the meta-network.

  Returns:
    [...] for each embedding.
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

  Args:
    inputs: with outputs of the agent's network and of its target network.
    embeddings: The embeddings of one network or of several.

  Returns:
    One for each pair; None where agents have no y and z.
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
      legal: [..., A] bool, the actions that count in the mean; None: all.
      shared: [..., S] further channels, the same for every action; first in
        order.

    Returns:
      [..., A, channels].
    """
    num_shared = 0 if shared is None else shared.shape[-1]
    size = num_shared + x.shape[-1]
    init = hk.initializers.TruncatedNormal((2 * size) ** -0.5)
    w = hk.get_parameter('w', (1, 2 * size, self._channels), x.dtype, init)
    b = hk.get_parameter('b', (self._channels,), x.dtype, jnp.zeros)
    w_own, w_mean = w[0, :size], w[0, size:]
    # Inputs that all actions share are multiplied once.
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
  """Blocks over the action axis, one after the other."""

  def __init__(self, channels: Sequence[int], name: str):
    super().__init__(name)
    self._channels = channels

  def __call__(
    self,
    x: types.Array,
    legal: types.Array | None,
    shared: types.Array | None = None,
  ) -> types.Array:
    """[..., A, C], and [..., S] for the first block -> [..., A, channels]."""
    for channels in self._channels:
      x, shared = ActionBlock(channels)(x, legal, shared), None
    return x


def _features(
  inputs: meta_features.PreparedInputs, config: MetaNetworkConfig
) -> tuple[types.Array, types.Array]:
  """Features of the steps, and the policy embedding that is a part of them.

  Args:
    inputs: T transitions of B trajectories.
    config: sizes.

  Returns:
    [T, B, F + 2 C] the F `meta_features.step_features`, then the policy
    embedding as its mean over actions and of the taken action; and the policy
    embedding [T, B, A, C], C = 2 channels by default.
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
  """E_y and E_z."""
  widths = config.prediction_embedding
  return (
    PredictionEmbedding(widths, name='mlp'),
    PredictionEmbedding(widths, name='mlp_1'),
  )


def _along_trajectory(
  config: MetaNetworkConfig, x: types.Array, rollout: types.Rollout
) -> types.Array:
  """[T, B, F] -> [T, B, lstm_size]; a step sees the rest of its episode.

  Where a time limit ends the episode, that is as where a rollout ends: masked
  transitions are not shown to the steps before them.
  """
  is_end = rollout.is_terminal | ~masked.next_is_real(rollout.mask)
  if not config.transformer_layers:
    return SequenceLSTM(config.lstm_size, reverse=True)(x, is_end)[0]
  return BackwardTransformer(
    config.lstm_size, config.transformer_layers, config.transformer_heads
  )(x, is_end)


class MetaRNN(hk.Module):
  """Summarises the agent's updates over its lifetime."""

  def __init__(self, config: MetaNetworkConfig, name: str = 'meta_lstm'):
    super().__init__(name)
    self._config = config

  @hk.name_like('unroll')
  def prediction_embeddings(
    self,
  ) -> tuple[PredictionEmbedding, PredictionEmbedding]:
    """Its own E_y and E_z."""
    return _prediction_embeddings(self._config)

  def unroll(
    self,
    inputs: meta_features.PreparedInputs,
    embedding: types.Array,
    y_hat: types.Array | None,
    state: hk.LSTMState,
  ) -> hk.LSTMState:
    """One step, on the mean over the real transitions of the batch.

    Args:
      inputs: the rollout, with predictions by its own embeddings.
      embedding: [T, B, 1] of the trajectory, by the meta-network.
      y_hat: [T, B], by its own embedding; None without y and z.
      state: each [meta_rnn_size].

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
      inputs: the rollout, the agent's outputs, and Retrace estimates.
      state: state of the meta-RNN before this update, each [meta_rnn_size];
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
  """The meta-network as pure functions.

  Args:
    config: sizes.

  Returns:
    init(key, inputs, state) and apply(eta, inputs, state), which returns what
    `MetaNetwork.__call__` does.
  """
  return hk.without_apply_rng(
    hk.transform(lambda inputs, state: MetaNetwork(config)(inputs, state))
  )


def initial_state(config: MetaNetworkConfig) -> hk.LSTMState | None:
  """The initial state of the meta-RNN; None without it."""
  if not config.meta_rnn_size:
    return None
  zeros = jnp.zeros((config.meta_rnn_size,))
  return hk.LSTMState(hidden=zeros, cell=zeros)


def init(key: types.Array, config: MetaNetworkConfig) -> types.Params:
  """Random parameters; no shape depends on the number of actions."""

  @jax.jit  # Each of the operations would be a program of its own.
  def draw(key: types.Array) -> types.Params:
    inputs = meta_features.zeros(config.prediction_size, config.has_q)
    return transform(config).init(key, inputs, initial_state(config))

  return draw(key)


def parameter_shapes(config: MetaNetworkConfig) -> dict[str, tuple[int, ...]]:
  """Shapes of the parameters by `module/parameter`, as in a rule's npz file."""
  params = jax.eval_shape(lambda key: init(key, config), jax.random.key(0))
  return {
    f'{module}/{name}': value.shape
    for module, leaves in params.items()
    for name, value in leaves.items()
  }
