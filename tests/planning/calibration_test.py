"""The rate of this machine: arithmetic over time, by a clock of the test's."""

import itertools
import time

import pytest
import small

from disco_rl.agent import agent as agent_lib
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.planning import calibration

pytestmark = pytest.mark.usefixtures('quick_compilation')


def test_the_rate_is_arithmetic_over_time(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  network = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(hidden_sizes=(32,)),
    action_model_lstm=4,
    action_model_head=4,
  )
  config = agent_lib.AgentConfig(
    network, unroll_length=3, batch_size=2, on_policy_share=0.0
  )
  seconds = itertools.count(0, 4)  # Each update takes four.
  monkeypatch.setattr(time, 'perf_counter', lambda: next(seconds))
  flop = 4 * calibration.rate(config, small.META_NETWORK)
  # Of the torso's layer, forwards and backwards to its parameters.
  torso = 2 * (2 * 4 * 2 * 64 * 32)
  assert torso < flop < 1000 * torso
