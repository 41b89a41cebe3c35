"""The test vectors for authors of ports, docs/vectors/disco103.npz.

They are computed again, and their gradients also by NumPy from the targets.
`PYTHONPATH=.:tests python tests/update_rules/vectors_test.py` writes the file.
"""

from collections.abc import Mapping
import pathlib

import goldens
import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights

PATH = goldens.DIRECTORY.parents[1] / 'docs' / 'vectors' / 'disco103.npz'
T, B, A = 4, 2, 3
UPDATES = 2

Arrays = Mapping[str, np.ndarray]


def make_inputs() -> dict[str, np.ndarray]:
  """Inputs at random, with two decimals so that the file is small."""
  rng = np.random.default_rng(0)
  rule = disco.Disco()
  spec = rule.output_spec(A)
  heads = {'logits': (A,), **{k: (x,) for k, x in spec.state.items()}}
  heads |= {name: (A, width) for name, width in spec.action.items()}
  normal = lambda *shape: rng.normal(size=shape).round(2).astype(np.float32)
  inputs: dict[str, np.ndarray] = {}
  for i in range(UPDATES):
    at = f'{i}/input'
    inputs[f'{at}/action'] = rng.integers(0, A, (T + 1, B)).astype(np.int32)
    inputs[f'{at}/behaviour_logits'] = normal(T + 1, B, A)
    inputs[f'{at}/reward'] = normal(T, B)
    inputs[f'{at}/is_terminal'] = rng.random((T, B)) < 0.2
    for name, shape in heads.items():
      inputs[f'{at}/online/{name}'] = normal(T + 1, B, *shape)
      inputs[f'{at}/target/{name}'] = normal(T + 1, B, *shape)
  return inputs


def compute(rule_params: types.Params, inputs: Arrays) -> dict[str, jax.Array]:
  """Targets, losses, gradients and states of all updates, by their keys."""
  rule = disco.Disco()
  state, results = rule.init_state({}), {}
  for i in range(UPDATES):
    own = {
      key.removeprefix(f'{i}/input/'): jnp.asarray(x)
      for key, x in inputs.items()
      if key.startswith(f'{i}/input/')
    }
    online, target = (
      {k.removeprefix(at): x for k, x in own.items() if k.startswith(at)}
      for at in ('online/', 'target/')
    )
    rollout = types.Rollout(
      observation=(),
      action=own['action'],
      logits=own['behaviour_logits'],
      reward=own['reward'],
      is_terminal=own['is_terminal'],
      mask=jnp.ones((T, B), bool),
    )
    targets, state, _ = rule.targets(
      rule_params, state, {}, rollout, online, lambda _, x=target: x
    )

    def losses(taken: types.Outputs) -> tuple[jax.Array, types.Logs]:
      loss, logs = rule.loss(taken, targets, rollout)  # noqa: B023
      return jnp.mean(loss), logs

    grads, logs = jax.grad(losses, has_aux=True)(_taken(online, rollout.action))
    named = {
      **{f'targets/{k}': getattr(targets, k) for k in ('pi', 'y', 'z', 'q')},
      **{f'loss/{k}': logs[f'{k}_loss'] for k in ('pi', 'y', 'z', 'aux_pi')},
      'loss/q': logs['q_loss'],
      **{f'gradient/{k}': x for k, x in grads.items()},
      'state/meta_rnn/hidden': state.meta_rnn.hidden,
      'state/meta_rnn/cell': state.meta_rnn.cell,
      **{
        f'state/{of}/{k}': getattr(getattr(state.moments, of), k)
        for of in ('advantage', 'td')
        for k in ('moment1', 'moment2', 'decay_product')
      },
    }
    results |= {f'{i}/{key}': x for key, x in named.items()}
  return results


def _taken(outputs: types.Outputs, action: jax.Array) -> types.Outputs:
  """Selects heads of the actions for the taken ones, [T, B, width]."""
  index = action[:-1, :, None, None]
  return {
    name: x
    if x.ndim == 3
    else jnp.take_along_axis(x[:-1], index, axis=2)[:, :, 0]
    for name, x in outputs.items()
  }


def test_vectors_are_what_the_rule_computes(
  disco103_path: pathlib.Path,
) -> None:
  with np.load(PATH, allow_pickle=False) as file:
    stored = {key: file[key] for key in file}
  inputs = {key: x for key, x in stored.items() if '/input/' in key}
  assert {key: x.shape for key, x in inputs.items()} == {
    key: x.shape for key, x in make_inputs().items()
  }
  params = weights.load(disco103_path)
  computed = jax.jit(compute)(params, inputs)
  assert computed.keys() | inputs.keys() == stored.keys()
  for key, value in computed.items():
    bound = goldens.VALUES if 'q' in key or 'td' in key else goldens.ONE_UPDATE
    assert goldens.deviation(value, stored[key]) <= bound, key


def test_gradients_of_the_vectors_are_those_of_divergences() -> None:
  with np.load(PATH, allow_pickle=False) as file:
    stored = {key: file[key].astype(np.float64) for key in file}
  softmax = lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
  for i in range(UPDATES):
    action = stored[f'{i}/input/action'][:-1].astype(int)
    real = stored[f'{i}/input/is_terminal'] == 0
    t, b = np.indices((T, B))
    policy = stored[f'{i}/input/online/logits']
    z = stored[f'{i}/input/online/z'][t, b, action]
    aux = stored[f'{i}/input/online/aux_pi'][t, b, action]
    expected = {
      'logits': softmax(policy[:-1]) - softmax(stored[f'{i}/targets/pi']),
      'y': softmax(stored[f'{i}/input/online/y'][:-1])
      - softmax(stored[f'{i}/targets/y']),
      'z': softmax(z) - softmax(stored[f'{i}/targets/z']),
      'aux_pi': (softmax(aux) - softmax(policy[1:])) * real[..., None],
    }
    for name, value in expected.items():
      found = stored[f'{i}/gradient/{name}'][:T]
      np.testing.assert_allclose(
        found, value / (T * B), atol=2e-8, err_msg=name
      )


if __name__ == '__main__':
  made = make_inputs()
  eta = weights.load('disco103')
  # In 64 bits: processors round 32 differently.
  with jax.enable_x64(True):
    double = lambda x: x.astype(np.float64) if x.dtype == np.float32 else x
    results = jax.jit(compute)(*jax.tree.map(double, (eta, made)))
  single = lambda x: np.asarray(x, np.float32)
  np.savez_compressed(PATH, **made, **jax.tree.map(single, results))
