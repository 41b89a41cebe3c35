"""Plans of runs: time by hand, settings that fit, and what is refused."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import launching
import numpy as np
import pytest

from benchmarks import small_runs
from configs import evaluate
from configs import quickstart
from disco_rl import planning
from disco_rl.evaluation import runner
from disco_rl.meta_training import meta_trainer
from disco_rl.networks import torsos
from disco_rl.runtime import compilation
from disco_rl.runtime import costs
from disco_rl.runtime import limits
from launch import plan as launcher

DEVICE = planning.Device(
  memory=2**30, flops={'float32': 100.0, 'bfloat16': 400.0}, bandwidth=10.0
)
ONE = planning.Cluster(
  DEVICE,
  devices=1,
  per_machine=1,
  host_memory=2**30,
  memory_fraction=0.5,
  efficiency=0.5,
  seconds_per_operation=0.25,
  steps_per_second=1000.0,
)


# Tests of other launchers need it.
_UNUSED = '--workdir=.'
BATCHES = {
  'batch_size': 96,
  'validation_trajectories': 48,
  'on_policy_share': 0.0,
}


def config_of(**changes: Any) -> Any:
  settings = {
    **quickstart.get_config().to_dict(),
    **small_runs.SETTINGS,
    'environments': 'catch/2x2',
    'agents': 4,
    **changes,
  }
  return meta_trainer.config_of(settings)


def seconds_of(dtype: str, **cost: float) -> list[float]:
  return ONE.seconds(costs.Cost(**cost), dtype).tolist()  # type: ignore[arg-type]


def test_a_program_takes_the_longer_of_arithmetic_and_traffic() -> None:
  assert seconds_of('float32', flop=1000, traffic=50) == [20, 0, 0, 0]
  assert seconds_of('bfloat16', flop=1000, traffic=50) == [0, 10, 0, 0]
  # Each operation takes a moment, however small.
  assert seconds_of('float32', flop=1000, operations=8) == [20, 0, 2, 0]


def test_acting_during_learning_takes_the_rest() -> None:
  learning = np.array([2.0, 1, 1, 0])
  assert planning._while(2, learning).tolist() == [2, 1, 1, 0]
  assert planning._while(10, learning).tolist() == [2, 1, 1, 6]


@pytest.mark.parametrize(
  ('sizes', 'devices', 'share'),
  [
    ((128,), 8, 1),
    ((126, 2), 2, 1),
    ((126, 2), 8, 4),
    ((112, 32, 60), 32, 8),
    # Of these no number of rows divides all: rows of 8 leave the fewest idle.
    ((114, 32, 60), 64, 8),
    ((3, 3), 2, 2),
    ((5,), 4, 4),
  ],
)
def test_devices_share_batches_where_that_saves_time(
  sizes: tuple[int, ...], devices: int, share: int
) -> None:
  cluster = dataclasses.replace(
    ONE, devices=devices, per_machine=min(devices, 8)
  )
  config = config_of(**BATCHES)
  chosen = planning.choose_batch_devices(config, sizes, cluster)
  assert chosen == share


def test_devices_that_cannot_share_batches_are_refused() -> None:
  cluster = dataclasses.replace(ONE, devices=64, per_machine=8)
  config = config_of(**BATCHES, batch_devices=16)
  with pytest.raises(ValueError, match='batch_devices=16 to the 8 of a mach'):
    planning.choose_batch_devices(config, [128], cluster)
  with pytest.raises(ValueError, match='must be a multiple'):
    dataclasses.replace(ONE, devices=9, per_machine=8)


def test_groups_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
  """Five agents on four devices take as long as eight on four."""
  monkeypatch.setattr(limits, 'usage', limits.usage_at_most)
  cluster = dataclasses.replace(ONE, devices=4)
  five, eight = (
    planning.of_discovery(config_of(agents=agents), cluster)
    for agents in (5, 8)
  )
  assert five.settings['group_multiple'] == 4
  assert eight.settings['group_multiple'] == 1
  np.testing.assert_allclose(five.seconds, eight.seconds)
  # Padding computes nothing of use.
  assert 8 * five.environment_steps == 5 * eight.environment_steps


def test_settings_that_take_less_memory_come_later() -> None:
  config = config_of(
    inner_updates=4, chunk_size=4, torso_chunk_size=torsos.AUTOMATIC
  )
  tried = [
    (
      one.agent.network.torso.chunk_size,
      one.chunk_size,
      one.inner_loop.save_every,
      one.inner_loop.offload,
    )
    for one in planning._smaller(config)
  ]
  # `limits.fitting` chooses the chunks of the first.
  assert tried[:3] == [
    (torsos.AUTOMATIC, 4, 1, False),
    (32, 2, 1, False),
    (32, 1, 1, False),
  ]
  assert tried[3:] == [
    (32, 1, 2, False),
    (32, 1, 4, False),
    (32, 1, 4, True),
  ]


def test_the_plan_of_a_small_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
  # What XLA reports is compared with compiled programs elsewhere.
  monkeypatch.setattr(limits, 'usage', limits.usage_at_most)
  config = config_of(inner_updates=2, chunk_size=1)
  # Each of two devices has two of the four agents.
  two = dataclasses.replace(ONE, devices=2, per_machine=2)
  plan = planning.of_discovery(config, two)
  inner_loop, agent = config.inner_loop, config.agent
  rollouts = inner_loop.inner_updates + (
    inner_loop.validation_trajectories // agent.num_environments
  )
  each = rollouts * agent.num_environments * agent.unroll_length
  assert plan.environment_steps == 4 * each
  assert plan.seconds.sum() >= plan.flop / 2 / (0.5 * 100.0)
  assert 0 < plan.device_bytes < 2**29
  assert plan.off_device.host == 0
  table = {name: value for name, value, _ in plan.rows()}
  assert table['days'] == pytest.approx(
    config.meta_steps * plan.seconds.sum() / 86_400
  )
  parts = ('arithmetic', 'bandwidth', 'launching', 'acting')
  assert sum(table[f'fraction_{part}'] for part in parts) == pytest.approx(1)
  assert json.loads(json.dumps(table))['torso_chunk_size'] == 0
  assert len(list(launcher._lines(plan))) == len(table)


def test_a_program_that_does_not_fit_is_refused() -> None:
  square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  call = (compilation.Program(lambda x: x @ x), (square,))
  running = limits.Running('product', call, 100, lambda: call)
  held = 2 * 4 * 64**2 + 100
  fits = dataclasses.replace(DEVICE, memory=2 * held)
  cluster = dataclasses.replace(ONE, device=fits)
  assert cluster.device_bytes([running, running]) == held
  small = dataclasses.replace(DEVICE, memory=2 * held - 2)
  with pytest.raises(limits.DoesNotFitError, match="'product' .* GiB"):
    dataclasses.replace(ONE, device=small).device_bytes([running])


def test_the_plan_of_a_small_training() -> None:
  settings = {
    **evaluate.get_config('quickstart').to_dict(),
    'environment': 'catch/2x2',
    'rule': 'policy_gradient',
    'updates': 10,
    'seeds': 2,
    'hidden_sizes': (4,),
  }
  config = runner.config_of(settings)
  plan = planning.of_training(config, ONE)
  assert plan.steps == 10
  assert plan.environment_steps == 2 * config.agent.actions_per_update
  assert plan.settings == {
    'torso_chunk_size': 0,
    'replay_on_disk': False,
    'devices': 1,
  }
  with pytest.raises(ValueError, match='one machine, and not 2'):
    planning.of_training(config, dataclasses.replace(ONE, devices=2))


def test_agents_with_host_environments_share_a_machine(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Two of its four devices train one agent each."""
  monkeypatch.setattr(limits, 'usage', limits.usage_at_most)
  settings = {
    **evaluate.get_config('quickstart').to_dict(),
    'environment': 'gymnasium/CartPole-v1',
    'rule': 'policy_gradient',
    'seeds': 2,
    'hidden_sizes': (4,),
    'unroll_length': 12,
    'num_bins': 41,
    'max_abs_value': 2.0,
  }
  config = runner.config_of(settings)
  slow = dataclasses.replace(
    ONE, devices=4, per_machine=4, steps_per_second=0.01
  )
  plan = planning.of_training(config, slow)
  assert plan.settings['devices'] == 2
  assert plan.environment_steps == 2 * config.agent.actions_per_update
  assert plan.seconds.sum() == pytest.approx(plan.environment_steps / 0.01)
  one = planning.of_training(dataclasses.replace(config, seeds=1), slow)
  assert plan.off_device.host == 2 * one.off_device.host > 0
  small = dataclasses.replace(slow, host_memory=1.5 * one.off_device.host)
  on_disk = planning.of_training(config, small)
  assert on_disk.settings['replay_on_disk']
  assert on_disk.off_device.host == 0
  # Checkpoints write the same replay, wherever the run holds it.
  assert on_disk.off_device.disk == plan.off_device.disk
  assert plan.off_device.disk > plan.off_device.host
  units = {name: unit for name, _, unit in plan.rows()}
  assert 'replay' in units['disk']


def test_flags_come_before_what_suits_a_rule(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  made = []

  def make_plan(settings: dict[str, Any]) -> Any:
    made.append(runner.config_of(settings).agent.learning_rate)
    raise ValueError('enough')

  monkeypatch.setattr(launcher, 'make_plan', make_plan)
  config = f'--config={launching.REPOSITORY}/configs/evaluate.py:catch'
  for flag in ('--config.learning_rate=0.25', '--config.updates=1'):
    with (
      launching.parsed(config, flag, '--config.rule=actor_critic', _UNUSED),
      pytest.raises(SystemExit, match='enough'),
    ):
      launcher.main(['plan'])
  assert made == [0.25, 1e-2]


def test_the_table_is_of_known_devices() -> None:
  for name, device in planning.DEVICES.items():
    assert 15 * 2**30 < device.memory < 150e9, name
    assert device.flops['float32'] <= device.flops['bfloat16'], name
