"""Running means and variances: those of all data at once."""

import jax.numpy as jnp
import numpy as np

from disco_rl.maths import running


def test_batches_add_up_to_the_moments_of_all_data() -> None:
  generator = np.random.default_rng(0)
  scale, shift = np.array([1.0, 1e-3, 50.0]), np.array([0.0, 2.0, -300.0])
  batches = [
    scale * generator.normal(size=(size, 3)) + shift + 0.1 * i
    for i, size in enumerate((5, 1, 40, 200))
  ]
  state = running.init((3,))
  for batch in batches:
    state = running.update(state, jnp.asarray(batch, jnp.float32))
  everything = np.concatenate(batches).astype(np.float32).astype(np.float64)
  assert state.count == len(everything)
  np.testing.assert_allclose(state.mean, everything.mean(0), rtol=1e-5)
  np.testing.assert_allclose(state.variance, everything.var(0), rtol=1e-4)


def test_the_first_batch_replaces_the_initial_values() -> None:
  state = running.update(running.init(), jnp.array([3.0, 5.0]))
  assert (state.count, state.mean, state.variance) == (2, 4, 1)
  assert running.init().variance == 1
