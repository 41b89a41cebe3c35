"""Discovery where actions are illegal: meta-gradients are finite."""

from collections.abc import Iterator

import discovering
import jax
import masked
import numpy as np
import pytest

from benchmarks import small_runs
from disco_rl.environments import families
from disco_rl.environments import registry
from disco_rl.meta_training import build


@pytest.fixture(autouse=True)
def _registered_doors() -> Iterator[None]:
  registry.register('doors', lambda *_: masked.Doors(), 'device')
  yield
  del families.FAMILIES['doors']


@pytest.mark.parametrize(
  'name',
  [
    'doors',
    pytest.param('gymnasium/HostDoors-v0', marks=pytest.mark.slow),
  ],
)
def test_a_meta_step(name: str) -> None:
  config = discovering.config_of(
    **small_runs.SMALL_RULE,
    environments=name,
    agents=2,
    chunk_size=1,
    inner_updates=2,
    validation_trajectories=4,
  )
  rule, rule_params = build.make_rule(config)
  (group,) = build.make_groups(config, rule)
  members = group.init(jax.random.split(jax.random.key(0), 2), rule_params)
  for _ in range(2):
    updates, members, logs = group.step(rule_params, members)
    for path, leaf in jax.tree.leaves_with_path(updates):
      assert np.isfinite(leaf).all(), path
    assert np.any(updates['lstm/linear_4']['w'])  # The head of pi_hat.
  for name, values in logs.items():
    if name not in ('return', 'success'):
      assert np.isfinite(values).all(), name
  # An illegal action on the device would cost 1.
  returns = np.asarray(logs['return'])
  assert (returns[np.isfinite(returns)] >= 0.0).all()
