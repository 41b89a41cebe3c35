"""The rates of this machine, by a clock of the test's."""

import itertools
import time
import types
from typing import Any

from disco_rl.planning import calibration
import pytest
import small

from benchmarks import small_runs
from configs import quickstart
from disco_rl.agent import agent as agent_lib
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import costs
from launch import to_records

pytestmark = pytest.mark.usefixtures('quick_compilation')


def test_two_times_tell_arithmetic_from_launching() -> None:
  # 100 operations a second, and half a second to start each.
  wide = (costs.Cost(flop=5000, operations=20), 60.0)
  many = (costs.Cost(flop=200, operations=1000), 502.0)
  assert calibration.rates(wide, many) == pytest.approx((100, 0.5))
  with pytest.raises(ValueError, match='60 and 0.1 s .* contradict'):
    calibration.rates(wide, (many[0], 0.1))


def test_programs_are_timed_and_counted(
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
  clock = itertools.count(0, 4)  # Each call takes four seconds.
  monkeypatch.setattr(time, 'perf_counter', lambda: next(clock))
  update, seconds = calibration.update_of(config, small.META_NETWORK)
  assert seconds == 4
  # Of the torso's layer, forwards and backwards to its parameters.
  torso = 2 * (2 * 4 * 2 * 64 * 32)
  assert torso < update.flop < 1000 * torso


def test_a_meta_step_is_that_of_all_kinds_of_agents(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(calibration, 'seconds_of_group', lambda *_: 4.0)
  settings = {
    **quickstart.get_config().to_dict(),
    **small_runs.SETTINGS,
    **small_runs.SMALL_RULE,
    'inner_updates': 1,
    'environments': 'catch/2x2,gridworld/03',
    'agents': 4,
  }
  cost, seconds = calibration.meta_step_of(to_records.meta_training(settings))
  assert seconds == 2 * 4
  assert cost.operations > 2000


def test_meta_steps_go_on_from_one_another(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  seen = []

  def step(rule_params: Any, members: Any) -> tuple[Any, Any, Any]:
    seen.append((rule_params, len(members)))
    return None, members[1:], None

  group: Any = types.SimpleNamespace(
    config=types.SimpleNamespace(num_members=20),
    init=lambda keys, _: keys,
    step=step,
  )
  monkeypatch.setattr(time, 'perf_counter', iter(range(20)).__next__)
  assert calibration.seconds_of_group(group, 'rule') == 1
  assert seen == [('rule', 20 - i) for i in range(len(seen))]
  assert len(seen) > 1
