"""Populations on several devices compute the same as on one.

Runs are processes of their own, whose CPU is divided into several devices.
"""

import json
import pathlib
import re

import launching
import pytest
import sharded

from disco_rl.runtime import sharding


@pytest.mark.slow
def test_layouts_of_devices_agree() -> None:
  """To rounding; devices communicate in the necessary sums alone."""
  layouts = ['4x2', '8x1', '1x8', 'groups']
  ended = launching.run_python(
    *('tests/sharded.py', *layouts),
    timeout=1200,
    JAX_NUM_CPU_DEVICES='8',
    PYTHONPATH=str(launching.REPOSITORY),
  )
  assert ended.returncode == 0, ended.stderr
  results = json.loads(ended.stdout)
  assert list(results) == layouts
  for layout, result in results.items():
    assert result['error'] <= 1e-10, layout
    of_step, of_mean = result['collectives']
    # Agents that share no batch do not communicate.
    assert not of_step.keys() - {'all-reduce over batch'}, layout
    # XLA joins sums where it can: of both passes of an update, of the
    # meta-value function, of the outer loss and of the backward pass; and of
    # the meta-RNN's inputs, whose weights are those of the real steps.
    assert sum(of_step.values()) <= 20, layout
    assert of_mean == {'all-reduce over agents': 1}, layout


@pytest.mark.parametrize(
  ('sizes', 'rows', 'expected'),
  [
    # 206 agents take 206 rows.
    ((114, 32, 60), 256, [114, 32, 60]),
    ((114, 32, 60), 128, [57, 16, 30]),
    ((3, 3), 2, [1, 1]),
    # One after another they take no longer.
    ((114, 32, 60), 8, None),
    ((4, 4), 2, None),
    ((4, 2), 1, None),
    ((7,), 8, None),
  ],
)
def test_groups_have_rows_of_their_own_if_that_saves_time(
  sizes: tuple[int, ...], rows: int, expected: list[int] | None
) -> None:
  assert sharding.rows_of_groups(sizes, rows) == expected


# Prints the error that discovery with each of these flags ends with.
ERRORS = """
import pathlib, sys
import launching, sharded
from launch import meta_train
for flags in sys.argv[2:]:
  workdir = pathlib.Path(sys.argv[1])
  print(launching.error(meta_train, workdir, *sharded.FLAGS, *flags.split()))
"""


def test_agents_and_batches_that_cannot_be_divided(
  tmp_path: pathlib.Path,
) -> None:
  expected = {
    '--config.agents=12': (
      'error: 12 agents in all cannot be divided equally among 8 devices: '
      'choose agents so that there are 8 or 16 of '
      r'them, or fewer devices \(.*\), or set group_multiple=8, which .*\.'
    ),
    '--config.batch_devices=3': (
      'error: batch_devices=3 must divide the 8 devices of this machine: '
      r'choose one of \[1, 2, 4, 8\]\.'
    ),
    '--config.batch_devices=4 --config.agents=2': (
      'error: validation_trajectories=2 cannot be divided equally among '
      r'batch_devices=4: choose 4\.'
    ),
  }
  ended = launching.run_python(
    *('-c', ERRORS, str(tmp_path / 'run'), *expected),
    JAX_NUM_CPU_DEVICES='8',
    PYTHONPATH=f'{launching.REPOSITORY}:{launching.REPOSITORY / "tests"}',
  )
  assert ended.returncode == 0, ended.stderr
  errors = ended.stdout.splitlines()
  assert len(errors) == len(expected)
  for error, pattern in zip(errors, expected.values()):
    assert re.fullmatch(pattern, error)
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('variable, devices', [(None, 3), ('2', 2)])
def test_a_cpu_counts_as_several_devices(
  variable: str | None, devices: int
) -> None:
  """Also after the settings were read, which may name the file of a rule."""
  code = (
    'import jax; from configs import general; '
    'from disco_rl.meta_training import meta_trainer; '
    'from disco_rl.runtime import sharding; '
    'meta_trainer.config_of(general.get_config().to_dict()); '
    'sharding.divide_cpu(3); print(jax.device_count())'
  )
  variables = {'JAX_NUM_CPU_DEVICES': variable} if variable else {}
  ended = launching.run_python('-c', code, **variables)
  assert ended.stdout.split() == [str(devices)], ended.stderr


def test_agents_are_divided_among_the_devices_of_a_cpu(
  tmp_path: pathlib.Path,
) -> None:
  failed = launching.run_python(
    *('-m', 'launch.meta_train', *sharded.FLAGS, '--config.cpu_devices=3'),
    f'--workdir={tmp_path / "run"}',
  )
  assert failed.returncode == 1
  assert not (tmp_path / 'run').exists()
  assert 'among 3 devices: choose' in failed.stderr.splitlines()[-1]


# Places arrays on four devices, as if other processes had more.
ARRAYS = """
import types, jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from disco_rl.maths import shared_batch
from disco_rl.runtime import distributed, sharding

def error(function, *args):
  try:
    function(*args)
  except ValueError as e:
    return str(e)

devices = jax.devices()
rows, squares = sharding.make_mesh(), sharding.make_mesh(2)
assert rows.devices.tolist() == [[x] for x in devices]
assert squares.devices.tolist() == [devices[:2], devices[2:]]
assert squares.axis_names == (sharding.AGENTS, sharding.BATCH)
assert error(sharding.make_mesh, 3) == (
  'batch_devices=3 must divide the 4 devices of this machine: choose one of '
  '[1, 2, 4].')
assert sharding.mesh_for(6).devices.tolist() == [[x] for x in devices[:3]]
assert sharding.mesh_for(5).devices.tolist() == [devices[:1]]
three, one = sharding.divide(rows, (3, 1))
assert three.devices.tolist() == rows.devices[:3].tolist()
assert one.devices.tolist() == rows.devices[3:].tolist()
assert sharding.divide(rows, (4, 4)) == [rows, rows]

# Trees are split along their first axis, or are on every device.
x = np.arange(8, dtype=np.float32).reshape(4, 2)
for is_distributed in (False, True):
  distributed.is_distributed = lambda: is_distributed
  placed = sharding.to_devices({'x': x}, rows, sharding.SPLIT)['x']
  for shard in placed.addressable_shards:
    assert np.array_equal(shard.data, x[[shard.device.id]])
  keys = jax.random.split(jax.random.key(0), 4)
  assert (sharding.to_devices(keys, rows, sharding.SPLIT) == keys).all()
  fetched = distributed.fetch({'x': placed, 'n': 3})
  assert isinstance(fetched['x'], np.ndarray)
  assert np.array_equal(fetched['x'], x)
  assert fetched['n'] == 3
distributed.is_distributed = lambda: False
shape = sharding.shapes(x, rows, sharding.SPLIT)
assert (shape.shape, shape.sharding) == ((4, 2), placed.sharding)
everywhere = sharding.to_devices(x, rows, sharding.REPLICATED)
part = sharding.part_on({'x': everywhere}, three)['x']
assert part.sharding.device_set == set(devices[:3])
assert np.array_equal(part, x)
assert sharding.part_on(part, three) is part
shape = sharding.shapes(x, rows, sharding.REPLICATED)
assert sharding.part_on(shape, three).sharding.device_set == set(devices[:3])
of_three = sharding.to_devices(x[:3], three, sharding.SPLIT)
like = jax.ShapeDtypeStruct((2,), np.float32)
joined = sharding.join_rows([of_three, None], like, rows)
assert joined.sharding == placed.sharding
assert joined.tolist() == [*x[:3].tolist(), [0, 0]]

# Two devices share each batch [T, B].
def learn(batch):
  own = shared_batch.local_shard({'a': batch, 'b': -batch})
  assert shared_batch.is_shared()
  sums = {'n': jnp.sum(own['a']), 'each': jnp.sum(own['b'], axis=1)}
  return own, shared_batch.total(sums), shared_batch.mean(sums)

specs = P(None, sharding.BATCH), sharding.REPLICATED, sharding.REPLICATED
program = sharding.Programs(squares).make(learn, (sharding.REPLICATED,), specs)
own, total, mean = program(sharding.to_devices(x, squares, sharding.REPLICATED))
assert np.array_equal(own['a'], x) and np.array_equal(own['b'], -x)
assert total['n'] == x.sum() and mean['n'] == x.sum() / 2
assert total['each'].tolist() == (-x.sum(1)).tolist()
assert mean['each'].tolist() == (-x.sum(1) / 2).tolist()
assert not shared_batch.is_shared()
assert shared_batch.local_shard(x) is shared_batch.total(x) is x
assert shared_batch.mean(x) is x
alone = jax.sharding.Mesh(np.array([devices[:1]]), squares.axis_names)
assert sharding.per_device(learn, alone, (), ()) is learn
assert 'batch_size=3' in error(sharding.check_batch, 3, squares, 'batch_size')
assert 'choose 2 or 4' in error(sharding.check_batch, 3, squares, 'batch_size')
assert error(sharding.check_batch, 4, squares, 'batch_size') is None
assert 'there are 4 or 6 of them' in error(
  sharding.check, 5, sharding.make_mesh(2), 'like x')
assert 'there are 4 of them' in error(sharding.check, 3, rows, 'like x')

# This process is the only one that has members 1 and 2 of four.
distributed.is_distributed = lambda: True
members = {'x': np.array([[1, 300], [-3, 4]], np.int16), 'key': keys[:2]}
gathered = distributed.gather(members, range(1, 3), 4)
assert gathered['x'].tolist() == [[0, 0], [1, 300], [-3, 4], [0, 0]]
assert gathered['x'].dtype == np.int16
assert (gathered['key'][1:3] == keys[:2]).all()
parts = distributed.from_parts(x, rows, sharding.SPLIT)
assert parts.sharding == placed.sharding and np.array_equal(parts, x)
assert np.array_equal(distributed.local_part(parts, rows, sharding.SPLIT), x)
elsewhere = types.SimpleNamespace(local_devices=[])
nothing = distributed.local_part({'x': x, 'k': keys}, elsewhere, sharding.SPLIT)
assert nothing['x'].shape == (0, 2) and nothing['k'].shape == (0,)
assert distributed.largest(3) == 3
assert distributed.has_all_processes(three)
assert distributed.is_only_here(jnp.zeros(2))
assert distributed.describe_devices() == (
  'Processes: 1. Devices: 4 each, 4 in all (cpu).')
print('done')
"""


def test_arrays_are_placed_on_several_devices() -> None:
  ended = launching.run_python('-c', ARRAYS, JAX_NUM_CPU_DEVICES='4')
  assert ended.stdout.split() == ['done'], ended.stderr


# Prints the largest difference of two updates on two devices from those on one.
# Of targets from each device's own part it would be above 0.01.
LOOP = """
import dataclasses, jax, numpy as np, small
from jax.sharding import PartitionSpec as P
import disco_rl
from disco_rl.environments.jax_native import catch
from disco_rl.update_rules import disco
spec = catch.Catch(4, 3).spec
sizes = dataclasses.replace(small.META_NETWORK, prediction_size=0)
rule = disco.Disco(sizes, num_bins=5, aux_pi_cost=0.0)
network = small.network(spec, rule.output_spec(3))
loaded = disco_rl.load_rule(rule, rule.init_params(jax.random.key(2)))
learner = disco_rl.Learner(network, spec, loaded, learning_rate=1e-2)
rng = np.random.default_rng(0)
rollout = disco_rl.Rollout(
  observation=rng.normal(size=(6, 4, 4, 3)).astype(np.float32),
  action=rng.integers(3, size=(6, 4)), logits=np.zeros((6, 4, 3)),
  reward=rng.normal(size=(5, 4)), is_terminal=np.zeros((5, 4), bool),
  mask=np.ones((5, 4), bool))
update = jax.shard_map(
  learner.update, mesh=jax.sharding.Mesh(jax.devices(), ('batch',)),
  in_specs=(P(), P(None, 'batch')), out_specs=P(), check_vma=False)
one = two = learner.init(jax.random.key(1))
for _ in range(2):
  one, logs_of_one = learner.update(one, rollout)
  two, logs_of_two = update(two, rollout)
def distance(x, y):
  x, y = np.asarray(x), np.asarray(y)
  return float(np.max(np.abs(x - y) / (1 + np.abs(x))))
pairs = jax.tree.map(distance, (one, logs_of_one), (two, logs_of_two))
print(max(jax.tree.leaves(pairs)))
"""


@pytest.mark.slow
def test_a_loop_of_ones_own_can_divide_batches() -> None:
  ended = launching.run_python(
    *('-c', LOOP),
    JAX_NUM_CPU_DEVICES='2',
    PYTHONPATH=f'{launching.REPOSITORY}:{launching.REPOSITORY / "tests"}',
  )
  assert ended.returncode == 0, ended.stderr
  assert 0 < float(ended.stdout) < 1e-5
