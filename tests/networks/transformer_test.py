"""Tests of disco_rl/networks/transformer.py."""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.networks import transformer

T, B, F, SIZE, HEADS = 6, 2, 3, 8, 2
# In the first trajectory an episode ends with step 2.
IS_TERMINAL = np.zeros((T, B), bool)
IS_TERMINAL[2, 0] = True


def sees(t: int, s: int, b: int) -> bool:
  """Whether step t may depend on step s of a trajectory."""
  return s >= t and (b == 1 or (s <= 2) == (t <= 2))


def test_a_step_depends_only_on_the_rest_of_its_episode() -> None:
  network = hk.without_apply_rng(
    hk.transform(
      lambda x: transformer.BackwardTransformer(SIZE, 2, HEADS)(x, IS_TERMINAL)
    )
  )
  x = jax.random.normal(jax.random.key(0), (T, B, F))
  params = jax.jit(network.init)(jax.random.key(1), x)

  @jax.jit
  def jacobian(x: Any) -> Any:
    # Of one unit: all of them together are zero, by the last layer norm.
    return jax.jacrev(lambda x: network.apply(params, x)[..., 0])(x)

  gradient = np.abs(jacobian(x)).max(axis=-1)  # [T, B, T, B]
  for t, b, s, other in np.ndindex(gradient.shape):
    expected = b == other and sees(t, s, b)
    assert (gradient[t, b, s, other] > 0) == expected, (t, b, s, other)


def test_attention_is_that_of_numpy() -> None:
  network = hk.without_apply_rng(
    hk.transform(
      lambda x: transformer.Attention(HEADS, 'attention')(
        x, transformer.attention_bias(jnp.asarray(IS_TERMINAL), HEADS)
      )
    )
  )
  x = jax.random.normal(jax.random.key(2), (T, B, SIZE))
  params = jax.jit(network.init)(jax.random.key(3), x)
  w = np.asarray(params['attention']['w'], np.float64)
  out = np.asarray(params['attention/outputs']['w'], np.float64)
  inputs, width = np.asarray(x, np.float64), SIZE // HEADS
  expected = np.zeros((T, B, SIZE))
  for t, b in np.ndindex(T, B):
    heads = []
    for h, slope in enumerate((2.0**-4, 2.0**-8)):
      seen = [s for s in range(T) if sees(t, s, b)]
      query = inputs[t, b] @ w[:, 0, h]
      logits = np.array(
        [
          query @ (inputs[s, b] @ w[:, 1, h]) / np.sqrt(width) - slope * (s - t)
          for s in seen
        ]
      )
      weights = np.exp(logits) / np.exp(logits).sum()
      heads.append(
        sum(p * inputs[s, b] @ w[:, 2, h] for p, s in zip(weights, seen))
      )
    expected[t, b] = np.concatenate(heads) @ out
  found = jax.jit(network.apply)(params, x)
  np.testing.assert_allclose(found, expected, atol=1e-5)
