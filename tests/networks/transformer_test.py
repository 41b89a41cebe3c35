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


def attend(inputs: np.ndarray, w: np.ndarray, out: Any) -> np.ndarray:
  """Attention in NumPy, one step and head at a time."""
  width, attended = SIZE // HEADS, np.zeros((T, B, SIZE))
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
    attended[t, b] = np.concatenate(heads) @ out['w'] + out['b']
  return attended


def perturbed(network: Any, x: Any) -> tuple[Any, Any]:
  """Random parameters, none of them 0 or 1; also in float64, for NumPy."""
  shapes = jax.eval_shape(network.init, jax.random.key(0), x)
  rng = np.random.default_rng(0)
  params = jax.tree.map(lambda x: 0.5 * rng.standard_normal(x.shape), shapes)
  return jax.tree.map(lambda x: x.astype(np.float32), params), params


def test_attention_is_that_of_numpy() -> None:
  network = hk.without_apply_rng(
    hk.transform(
      lambda x: transformer.Attention(HEADS, 'attention')(
        x, transformer.attention_bias(jnp.asarray(IS_TERMINAL), HEADS)
      )
    )
  )
  x = np.random.default_rng(1).standard_normal((T, B, SIZE)).astype(np.float32)
  params, own = perturbed(network, x)
  found = jax.jit(network.apply)(params, x)
  expected = attend(x, own['attention']['w'], own['attention/outputs'])
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_layers_are_those_of_numpy() -> None:
  """Each adds attention, then a dense layer, to what it is given."""
  network = hk.without_apply_rng(
    hk.transform(
      lambda x: transformer.BackwardTransformer(SIZE, 2, HEADS, 'net')(
        x, IS_TERMINAL
      )
    )
  )
  x = np.random.default_rng(2).standard_normal((T, B, F)).astype(np.float32)
  params, own = perturbed(network, x)

  def linear(x: np.ndarray, name: str) -> np.ndarray:
    return x @ own[f'net/{name}']['w'] + own[f'net/{name}']['b']

  def norm(x: np.ndarray, name: str) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * own[f'net/{name}']['scale'] + own[f'net/{name}']['offset']

  expected = linear(x, 'inputs')
  for i in range(2):
    expected = expected + attend(
      norm(expected, f'attention_norm_{i}'),
      own[f'net/attention_{i}']['w'],
      own[f'net/attention_{i}/outputs'],
    )
    y = linear(norm(expected, f'dense_norm_{i}'), f'dense_{i}/~/linear_0')
    assert y.shape == (T, B, 4 * SIZE)
    # The approximation of the GELU by tanh.
    y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    expected = expected + linear(y, f'dense_{i}/~/linear_1')
  found = jax.jit(network.apply)(params, x)
  np.testing.assert_allclose(found, norm(expected, 'norm'), atol=1e-4)
