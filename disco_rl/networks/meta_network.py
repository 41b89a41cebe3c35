"""The meta-network: from an agent's rollout to the targets it moves towards."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class MetaNetworkConfig:
  """Sizes of the meta-network; the defaults are those of Disco103.

  Attributes:
    prediction_size: Y, width of the predictions y and z.
    prediction_embedding: widths of the layers of E_y and E_z.
    policy_channels: channels of the blocks of the policy embedding.
    policy_target_channels: channels of the blocks that emit pi_hat.
    lstm_size: of the LSTM that runs backwards along the trajectory.
    meta_rnn_input_size: of the layer in front of the meta-RNN.
    meta_rnn_size: of the LSTM that lives as long as the agent.
  """

  prediction_size: int = 600
  prediction_embedding: tuple[int, ...] = (16, 1)
  policy_channels: tuple[int, ...] = (16, 2)
  policy_target_channels: tuple[int, ...] = (16,)
  lstm_size: int = 256
  meta_rnn_input_size: int = 16
  meta_rnn_size: int = 128


def parameter_shapes(config: MetaNetworkConfig) -> dict[str, tuple[int, ...]]:
  """Shapes of eta by `module/parameter`, the keys of a rule's npz file."""
  raise NotImplementedError
