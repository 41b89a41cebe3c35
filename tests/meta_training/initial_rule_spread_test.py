"""The spread of an initial rule is over actions, and over nothing else."""

import dataclasses
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.meta_training import initial_rule
from disco_rl.networks import meta_network

CONFIG = meta_network.MetaNetworkConfig(
  prediction_size=4,
  prediction_embedding=(3, 1),
  policy_channels=(2, 1),
  policy_target_channels=(3,),
  lstm_size=4,
  meta_rnn_input_size=3,
  meta_rnn_size=4,
)
TIME, TRAJECTORY, ACTION = np.indices(initial_rule._SHAPE)


@dataclasses.dataclass(frozen=True)
class Outputs:
  """Attributes: pi: [T, B, A]."""

  pi: types.Array


@dataclasses.dataclass(frozen=True)
class Emits:
  """In the place of the meta-network: its outputs are given.

  Attributes:
    pi: [T, B, A].
  """

  pi: np.ndarray

  def apply(self, params: None, inputs: Any, state: Any) -> Any:
    del params
    assert inputs.rollout.logits[:-1].shape == self.pi.shape
    return Outputs(jnp.asarray(self.pi, jnp.float32)), state


def spread(monkeypatch: pytest.MonkeyPatch, pi: np.ndarray) -> float:
  """Of a rule that emits pi, whatever its parameters."""
  monkeypatch.setattr(meta_network, 'transform', lambda _: Emits(pi))
  params: Any = None
  return float(initial_rule.spread(jax.random.key(0), CONFIG, params))


@pytest.mark.parametrize(
  'pi',
  [0.7 + 0 * ACTION, TIME, TRAJECTORY, np.sin(TIME) * TRAJECTORY],
  ids=['constant', 'time', 'trajectory', 'both'],
)
def test_time_and_trajectory_do_not_count(
  monkeypatch: pytest.MonkeyPatch, pi: np.ndarray
) -> None:
  assert spread(monkeypatch, pi) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
  'pi, share',
  [
    (ACTION, 1.0),
    (10 * TIME + TRAJECTORY + ACTION, 1.0),
    # The mean over all inputs does not differ between actions.
    ((ACTION + TIME + TRAJECTORY) % 3, 1.0),
    # In one trajectory of B, at all times; in all of them, at one of T times.
    (ACTION * (TRAJECTORY == 2), 1 / initial_rule._SHAPE[1]),
    (ACTION * (TIME == 5), 1 / initial_rule._SHAPE[0]),
  ],
  ids=['action', 'all', 'turns', 'one trajectory', 'one time'],
)
def test_actions_do(
  monkeypatch: pytest.MonkeyPatch, pi: np.ndarray, share: float
) -> None:
  """0, 1 and 2 deviate from their mean by sqrt(2 / 3)."""
  expected = share * (2 / 3) ** 0.5
  assert spread(monkeypatch, pi) == pytest.approx(expected, rel=1e-4)


def test_the_spread_is_a_mean_over_inputs(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  pi = np.sin(3.0 * TIME + 5.0 * TRAJECTORY + 7.0 * ACTION * (1 + TRAJECTORY))
  expected = statistics.fmean(
    statistics.pstdev(row) for row in pi.reshape(-1, pi.shape[-1]).tolist()
  )
  assert spread(monkeypatch, pi) == pytest.approx(expected, rel=1e-4)
