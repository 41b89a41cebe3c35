"""The masked mean of a batch that devices share, where masks are unequal.

As a program this computes on four devices, agents x batch = 2 x 2, and prints
JSON; the test compares with NumPy.
"""

import json
import os

import jax
import jax.numpy as jnp
import launching
import numpy as np

from disco_rl import types
from disco_rl.maths import masked
from disco_rl.maths import moments
from disco_rl.maths import shared_batch
from disco_rl.runtime import sharding

AGENTS, LENGTH, BATCH = 2, 3, 4
WEIGHT, DECAY = 0.7, 0.9


def batches() -> tuple[np.ndarray, np.ndarray]:
  """x and masks, [agents, T, B]; a device has half of the columns."""
  x = np.random.default_rng(0).normal(size=(AGENTS, LENGTH, BATCH)) + 1.0
  mask = np.ones(x.shape)
  # One agent: five of six entries on one device, one of six on the other.
  mask[0, 0, 0] = 0.0
  mask[0, :, 2:] = 0.0
  mask[0, 1, 3] = 1.0
  # The other agent: nothing at all on one device.
  mask[1, :, :2] = 0.0
  mask[1, 2, 2] = 0.0
  return x, mask


def main() -> None:
  mesh = sharding.make_mesh(batch_devices=2)
  assert mesh.devices.shape == (2, 2)

  def mean(
    weight: types.Array, x: types.Array, mask: types.Array
  ) -> types.Array:
    return masked.mean(jnp.sin(weight * x), mask)

  def one(x: types.Array, mask: types.Array) -> dict[str, types.Array]:
    weight = jnp.float32(WEIGHT)
    value, gradient = jax.value_and_grad(mean)(weight, x, mask)
    pairs = masked.mean({'x': jnp.stack([x, -x], axis=-1)}, mask)['x']
    state = moments.update(moments.init(), x, mask > 0.0, DECAY)
    return {
      'value': value,
      'gradient': shared_batch.mean(gradient),
      'second_of_pair': pairs[1],
      'variance': moments.statistics(state)[1],
    }

  x, mask = map(jnp.float32, batches())
  program = sharding.per_device(
    jax.vmap(one), mesh, 2 * (sharding.SPLIT_BATCH,), sharding.SPLIT
  )
  results = jax.jit(program)(x, mask)
  print(json.dumps({k: np.asarray(v).tolist() for k, v in results.items()}))


def test_masked_mean_over_devices_with_unequal_masks() -> None:
  """And its gradient, made whole by `shared_batch.mean`."""
  ended = launching.run_python(
    __file__,
    JAX_NUM_CPU_DEVICES='4',
    PYTHONPATH=os.pathsep.join(
      str(launching.REPOSITORY / folder) for folder in ('', 'tests')
    ),
  )
  assert ended.returncode == 0, ended.stderr
  results = json.loads(ended.stdout)
  x, mask = batches()
  for name, terms in {
    'value': np.sin(WEIGHT * x),
    'gradient': x * np.cos(WEIGHT * x),
    'second_of_pair': -x,
  }.items():
    expected = [terms[i][mask[i] > 0].mean() for i in range(AGENTS)]
    np.testing.assert_allclose(results[name], expected, rtol=1e-5)
  variances = [x[i][mask[i] > 0].var() for i in range(AGENTS)]
  np.testing.assert_allclose(results['variance'], variances, rtol=1e-4)


def test_masked_mean_on_one_device() -> None:
  x, mask = batches()
  for i in range(AGENTS):
    np.testing.assert_allclose(
      masked.mean(jnp.float32(x[i]), jnp.float32(mask[i])),
      x[i][mask[i] > 0].mean(),
      rtol=1e-5,
    )
  nothing = masked.mean(jnp.ones((2, 2)), jnp.zeros((2, 2)))
  assert nothing == 0.0


if __name__ == '__main__':
  main()
