"""Plans of runs: time by hand, settings that fit, and what is refused."""

import dataclasses
import json
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import launching
import pytest

from benchmarks import small_runs
from configs import evaluate
from configs import quickstart
from disco_rl import config as config_lib
from disco_rl.meta_training import meta_trainer
from disco_rl.networks import torsos
from disco_rl.planning import clusters
from disco_rl.planning import costs
from disco_rl.planning import fitting
from disco_rl.runtime import compilation
from disco_rl.training import config as training_config
from launch import plan as launcher

ONE = clusters.Cluster(
  'cpu',
  memory=2**29,
  flops={'float32': 50.0, 'bfloat16': 200.0},
  bandwidth=5.0,
  seconds_per_operation=0.25,
  steps_per_second=1000.0,
  host_memory=2**30,
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


def load_of(
  size: int, during: int = 0, between: int = 0, **settings: Any
) -> fitting.Load:
  square = jax.ShapeDtypeStruct((size, size), jnp.float32)
  call = (compilation.Program(lambda x: x @ x), (square,))
  schedule = fitting.Schedule(1, during, between)
  return fitting.Load(
    'product', call, lambda: call, schedule=schedule, **settings
  )


def needs_of(*loads: fitting.Load, host: int = 0) -> fitting.Needs:
  return fitting.Needs('The run', loads, host, 0, 'Lower it.')


def table_of(
  needs: fitting.Needs, cluster: clusters.Cluster = ONE
) -> dict[str, Any]:
  return dict_of(
    cluster.table([(needs, 3)], 'float32', 1.0, ('update', 864, 7))
  )


def test_acting_during_learning_takes_the_rest() -> None:
  learning = 192 / 5 + 0.25  # Three matrices of 64 bytes, and an operation.
  for acting, waiting, expected in (
    (20, 0, learning),
    (50, 0, 50),
    (50, 5, 55),
  ):
    table = table_of(needs_of(load_of(4, acting, waiting)))
    assert table['seconds_per_update'] == pytest.approx(expected)
    assert table['days'] == pytest.approx(expected / 100)
    assert table['tflop_per_update'] == pytest.approx(3 * 128e-12)
    assert table['environment_steps_per_update'] == 7
    of_acting = (expected - learning) / expected
    assert table['fraction_acting'] == pytest.approx(of_acting)


@pytest.mark.parametrize(
  ('sizes', 'devices', 'shares'),
  [
    ((128,), 8, [1, 2, 4, 8]),
    ((126, 2), 2, [1, 2]),
    ((126, 2), 8, [4, 8]),
    ((112, 32, 60), 32, [8]),
    # Of these no number of rows divides all: rows of 8 leave the fewest idle.
    ((114, 32, 60), 64, [8]),
    # Each group has a row.
    ((3, 3), 2, [1, 2]),
    ((114, 32, 60), 1024, [4, 8]),
    ((114, 32, 60), 2048, [8]),
    ((5,), 4, [4]),
  ],
)
def test_devices_share_batches_where_that_saves_time(
  sizes: tuple[int, ...], devices: int, shares: list[int]
) -> None:
  cluster = dataclasses.replace(
    ONE, devices=devices, per_machine=min(devices, 8)
  )
  config = config_of(**BATCHES)
  chosen = launcher.choose_batch_devices(config, sizes, cluster)
  assert chosen == shares


def test_devices_that_cannot_share_batches_are_refused() -> None:
  cluster = dataclasses.replace(ONE, devices=64, per_machine=8)
  config = config_of(**BATCHES, batch_devices=16)
  with pytest.raises(ValueError, match='batch_devices=16 to the 8 of a mach'):
    launcher.choose_batch_devices(config, [128], cluster)
  with pytest.raises(ValueError, match='must be a multiple'):
    dataclasses.replace(ONE, devices=9, per_machine=8)


def dict_of(table: clusters.Table) -> dict[str, Any]:
  return {name: value for name, value, _ in table}


def test_more_devices_share_batches_before_settings_compute_more() -> None:
  config = config_of(**BATCHES, torso_chunk_size=config_lib.AUTOMATIC)
  tried = [
    (one.agent.network.torso.chunk_size, one.batch_devices)
    for one in launcher._candidates(config, [4, 8])
  ]
  assert tried[:4] == [(0, 4), (0, 8), (512, 4), (512, 8)]


@pytest.mark.slow
def test_groups_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
  """Five agents on four devices take as long as eight on four."""
  monkeypatch.setattr(fitting.Load, 'measurement', lambda load: load.bound)
  cluster = dataclasses.replace(ONE, devices=4)
  five, eight = (
    dict_of(launcher.of_discovery(config_of(agents=agents), cluster))
    for agents in (5, 8)
  )
  assert five['group_multiple'] == 4
  assert eight['group_multiple'] == 1
  seconds, steps = 'seconds_per_meta_step', 'environment_steps_per_meta_step'
  assert five[seconds] == pytest.approx(eight[seconds])
  # Padding computes nothing of use.
  assert 8 * five[steps] == 5 * eight[steps]


@pytest.mark.slow
def test_groups_on_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
  """They take as long as the longest, and no more arithmetic."""
  monkeypatch.setattr(fitting.Load, 'measurement', lambda load: load.bound)
  config = config_of(environments='catch/2x2,catch/6x5', agents=6)
  one, two = (
    dict_of(
      launcher.of_discovery(
        config, dataclasses.replace(ONE, devices=devices, per_machine=devices)
      )
    )
    for devices in (1, 2)
  )
  assert 'rows_of_groups' not in one
  assert two['rows_of_groups'] == '1, 1'
  assert two['group_multiple'] == 1
  work, seconds = 'tflop_per_meta_step', 'seconds_per_meta_step'
  assert two[work] == pytest.approx(one[work])
  assert one[seconds] / 2 <= two[seconds] < 0.9 * one[seconds]
  assert two['device_memory'] < one['device_memory']


def test_settings_that_take_less_memory_come_later() -> None:
  config = config_of(
    inner_updates=4, chunk_size=4, torso_chunk_size=config_lib.AUTOMATIC
  )
  tried = [
    (
      one.agent.network.torso.chunk_size,
      one.chunk_size,
      one.inner_loop.save_every,
      one.inner_loop.offload,
    )
    for one in launcher._smaller(config)
  ]
  assert tried[:6] == [
    *((size, 4, 1, False) for size in torsos.CHUNK_SIZES),
    (32, 2, 1, False),
    (32, 1, 1, False),
  ]
  assert tried[6:] == [
    (32, 1, 2, False),
    (32, 1, 4, False),
    (32, 1, 4, True),
  ]


@pytest.mark.slow
def test_the_plan_of_a_small_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
  # What XLA reports is compared with compiled programs elsewhere.
  monkeypatch.setattr(fitting.Load, 'measurement', lambda load: load.bound)
  config = config_of(inner_updates=2, chunk_size=1)
  # Each of two devices has two of the four agents.
  two = dataclasses.replace(ONE, devices=2, per_machine=2)
  table = dict_of(launcher.of_discovery(config, two))
  inner_loop, agent = config.inner_loop, config.agent
  rollouts = inner_loop.inner_updates + (
    inner_loop.validation_trajectories // agent.num_environments
  )
  each = rollouts * agent.num_environments * agent.unroll_length
  assert table['environment_steps_per_meta_step'] == 4 * each
  seconds, flop = table['seconds_per_meta_step'], table['tflop_per_meta_step']
  assert seconds >= 1e12 * flop / 2 / 50.0
  assert 0 < table['device_memory'] < 0.5
  assert table['host_memory'] == 0
  assert table['days'] == pytest.approx(config.meta_steps * seconds / 86_400)
  parts = ('arithmetic', 'bandwidth', 'launching', 'acting')
  assert sum(table[f'fraction_{part}'] for part in parts) == pytest.approx(1)
  assert json.loads(json.dumps(table))['torso_chunk_size'] == 0


def test_a_program_that_does_not_fit_is_refused() -> None:
  held = 2 * 4 * 64**2 + 100
  load = load_of(64, other_bytes=100, remedies=('set a=1', 'lower b'))
  small = load_of(8)
  fits = dataclasses.replace(ONE, memory=held)
  needs = needs_of(small, load, load)
  assert table_of(needs, fits)['device_memory'] == held / 2**30
  with pytest.raises(
    fitting.DoesNotFitError, match="'product' takes .* GiB.*set a=1, lower b"
  ):
    table_of(needs, dataclasses.replace(ONE, memory=held - 1))
  assert table_of(needs_of(small, host=2**30))['host_memory'] == 1
  with pytest.raises(fitting.MachineTooSmallError, match='Lower it'):
    table_of(needs_of(small, host=2**30 + 1))


@pytest.mark.parametrize('cores', [1, 4])
def test_the_largest_programs_are_compiled_first(
  cores: int,
  monkeypatch: pytest.MonkeyPatch,
  capfd: pytest.CaptureFixture[str],
) -> None:
  monkeypatch.setattr('os.cpu_count', lambda: cores)
  needs = needs_of(load_of(2), load_of(64, owner='agents'), load_of(63))
  assert needs.most_held(2**20) == 2 * 4 * 64**2
  # XLA may warn of programs in its cache.
  lines = [
    line
    for line in capfd.readouterr().err.splitlines()
    if line.startswith('compiling')
  ]
  assert lines[0] == 'compiling 1/2: product, agents'
  assert len(lines) == min(cores, 3)


def test_programs_that_fit_by_their_bound_are_not_compiled(
  capfd: pytest.CaptureFixture[str],
) -> None:
  def refuse() -> Any:
    raise AssertionError('compiled')

  load = dataclasses.replace(load_of(64), on_one_row=refuse)
  bound = load.bound().total
  assert needs_of(load).most_held(bound, enough=bound) == bound
  needs_of(load).check()
  with pytest.raises(AssertionError, match='compiled'):
    needs_of(load).most_held(bound, enough=bound - 1)
  # The second is not announced either.
  capfd.readouterr()
  smaller = load_of(63)
  needs = needs_of(load_of(64), smaller)
  assert needs.most_held(2**20, enough=smaller.bound().total) == 2 * 4 * 64**2
  assert 'compiling 1/1: product\n' in capfd.readouterr().err
  # Nor are programs of other devices that hold less.
  small = dataclasses.replace(load_of(32), on_one_row=refuse)
  parts = [(needs_of(load_of(64)), 1), (needs_of(small), 1)]
  ONE.table(parts, 'float32', 1.0, ('update', 864, 7))


def test_the_plan_of_a_small_training() -> None:
  settings = {
    **evaluate.get_config('quickstart').to_dict(),
    'environment': 'catch/2x2',
    'rule': 'policy_gradient',
    'updates': 10,
    'seeds': 2,
    'hidden_sizes': (4,),
  }
  config, rule = training_config.resolve(settings)
  table = dict_of(launcher.of_training(config, rule, ONE))
  assert table['environment_steps_per_update'] == (
    2 * config.agent.actions_per_update
  )
  assert [*table.values()][-3:] == [0, False, 1]
  with pytest.raises(ValueError, match='one machine, not 2'):
    launcher.of_training(config, rule, dataclasses.replace(ONE, devices=2))


def test_agents_with_host_environments_share_a_machine(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Two of its four devices train one agent each."""
  monkeypatch.setattr(fitting.Load, 'measurement', lambda load: load.bound)
  settings = {
    **evaluate.get_config('quickstart').to_dict(),
    'environment': 'gymnasium/CartPole-v1',
    'rule': 'policy_gradient',
    'seeds': 2,
    'separate_torsos': False,
    'hidden_sizes': (4,),
    'unroll_length': 12,
    'num_bins': 41,
    'max_abs_value': 2.0,
  }
  config, rule = training_config.resolve(settings)
  slow = dataclasses.replace(
    ONE, devices=4, per_machine=4, steps_per_second=0.01
  )

  def plan(config: Any, cluster: clusters.Cluster = slow) -> dict[str, Any]:
    return dict_of(launcher.of_training(config, rule, cluster))

  both = plan(config)
  assert both['devices'] == 2
  steps = both['environment_steps_per_update']
  assert steps == 2 * config.agent.actions_per_update
  assert both['seconds_per_update'] == pytest.approx(steps / 0.01)
  one = plan(dataclasses.replace(config, seeds=1))
  assert both['host_memory'] == 2 * one['host_memory'] > 0
  host_memory = 1.5 * one['host_memory'] * 2**30
  on_disk = plan(config, dataclasses.replace(slow, host_memory=host_memory))
  assert on_disk['replay_on_disk']
  assert on_disk['host_memory'] == 0
  # Checkpoints write the same replay, wherever the run holds it.
  assert on_disk['disk'] == both['disk'] > both['host_memory']


def test_a_device_that_is_not_known_is_described_by_flags() -> None:
  config = f'--config={launching.REPOSITORY}/configs/evaluate.py:catch'
  described = ('--memory_gib=24', '--tflops=165', '--bandwidth_gbs=1008')
  with (
    launching.parsed(config, *described, '--device=rtx', _UNUSED),
    pytest.raises(ValueError, match='or leave out --device and describe it'),
  ):
    launcher.make_cluster()
  with launching.parsed(config, *described, _UNUSED):
    cluster = launcher.make_cluster()
    assert cluster.bandwidth == pytest.approx(0.4 * 1008e9)
    for operands in ('bfloat16', 'float32'):
      assert cluster.flops[operands] == pytest.approx(0.4 * 165e12)
    with pytest.raises(flags.IllegalFlagValueError, match='above 0'):
      flags.FLAGS.efficiency = 0.0


def test_flags_come_before_what_suits_a_rule(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  made = []

  def make_plan(settings: dict[str, Any]) -> Any:
    made.append(training_config.config_of(settings).agent.learning_rate)
    raise ValueError('enough')

  monkeypatch.setattr(launcher, 'make_plan', make_plan)
  config = f'--config={launching.REPOSITORY}/configs/evaluate.py:catch'
  for flag in ('--config.learning_rate=0.25', '--config.updates=1'):
    with (
      launching.parsed(config, flag, '--config.rule=actor_critic', _UNUSED),
      pytest.raises(SystemExit, match='enough'),
    ):
      launcher.main(['plan'])
  assert made == [0.25, 1e-3]
