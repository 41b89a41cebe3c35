"""Meta-steps with variants of the method: each runs, and lacks what it says."""

import re
from typing import Any

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small

from benchmarks import small_runs
from configs import ablations
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.runtime import sharding


def config_of(*names: str, **settings: Any) -> Any:
  """Several variants at once, tiny."""
  changes: dict[str, Any] = {'agents': 2, 'chunk_size': 2, 'inner_updates': 2}
  for name in names:
    changes |= ablations.VARIANTS[name]
  return discovering.config_of(**changes, **settings)


@pytest.mark.slow
def test_a_meta_step_moves_every_parameter() -> None:
  """With all parts left out at once, and one Adam for all agents."""
  config = config_of(
    *('no_y_and_z', 'no_q', 'no_aux_pi', 'no_meta_rnn'),
    *('transformer', 'shared_adam'),
  )
  rule = config.rule_settings
  initial = small.nest(
    {k: 0.3 * x for k, x in small.arrays(config.rule_settings.network).items()}
  )
  mesh = sharding.make_mesh()
  step = meta_step.MetaStep(config, build.make_groups(config, rule), mesh)
  before = step.init(sharding.to_devices(initial, mesh, sharding.REPLICATED))
  after, (logs,), norm = step(before)
  assert all(np.isfinite(x).all() for k, x in logs.items() if k != 'return')
  assert not [k for k in logs if re.search('_[yz]_|q_|aux_pi', k)]
  assert norm > 0
  moved = small_runs.differing(after.rule_params, initial)
  still = {*small.arrays(config.rule_settings.network)} - {*moved}
  assert not still
  # A checkpoint holds the shared moments.
  restored = step.restore(1, step.to_tree(after))
  assert optax.tree.get(restored.opt_state, 'mu') is not None


def test_one_adam_for_all_takes_the_mean_of_the_gradients() -> None:
  """Against NumPy: Kingma & Ba (2015), algorithm 1, after clipping the mean."""
  config = config_of(
    'shared_adam',
    meta_learning_rate=0.1,
    max_meta_gradient_norm=2.0,
    meta_decay_steps=0,
  )
  of_agent, of_mean = meta_update.meta_optimizers(config)
  mesh, agents, steps = sharding.make_mesh(), 3, 4
  # Of very different sizes; every second mean is below the bound, whose
  # clipping is all that tells a mean from a sum: Adam does not.
  scale = np.array([0.01, 1.0, 10.0]) * np.array([[1.0], [0.1], [1.0], [0.1]])
  gradients = np.random.default_rng(0).normal(size=(steps, agents, 5))
  gradients *= scale[..., None]
  params = {'module': {'w': jnp.zeros(5)}}
  opt_state = of_mean.init(params)
  apply = jax.jit(
    lambda params, opt_state, total: meta_update.apply_mean(
      of_mean, params, opt_state, [total], agents, mesh
    )
  )
  eta, m, v = np.zeros(5), np.zeros(5), np.zeros(5)
  for t, of_agents in enumerate(gradients, start=1):
    updates = [
      of_agent.update(jnp.float32(g), of_agent.init(params))[0]
      for g in of_agents
    ]
    total = {'module': {'w': sum(updates)[None]}}
    params, opt_state, norm = apply(params, opt_state, total)

    mean = of_agents.mean(axis=0)
    mean *= min(1.0, 2.0 / np.linalg.norm(mean))
    m, v = 0.9 * m + 0.1 * mean, 0.999 * v + 0.001 * mean**2
    change = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    eta -= 0.1 * change
    np.testing.assert_allclose(params['module']['w'], eta, atol=1e-5)
    np.testing.assert_allclose(norm, 0.1 * np.linalg.norm(change), rtol=1e-4)


def test_by_default_each_agent_has_its_own_adam() -> None:
  of_agent, of_mean = meta_update.meta_optimizers(
    config_of('full', average_rule=False)
  )
  params = {'w': jnp.zeros(2)}
  assert optax.tree.get(of_agent.init(params), 'mu') is not None
  assert not jax.tree.leaves(of_mean.init(params))


@pytest.mark.parametrize('name', ablations.VARIANTS)
def test_each_name_is_a_config(name: str) -> None:
  settings = ablations.get_config(name).to_dict()
  full = ablations.get_config().to_dict()
  changed = {k for k, x in settings.items() if x != full[k]}
  assert changed == set(ablations.VARIANTS[name])
  meta_trainer.config_of(settings)


def test_an_unknown_variant() -> None:
  with pytest.raises(ValueError, match="no 'no_p'; choose one of full, no_y"):
    ablations.get_config('no_p')
