"""The meta-gradient: golden values, equal modes, finite differences."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from disco_rl import agent as agent_lib
from disco_rl import learner
from disco_rl import types
from disco_rl.meta_training import living as living_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import outer_loss
from tests import goldens

NO_REGULARIZERS = outer_loss.OuterLossConfig(0.0, 0.0, 0.0, 0.0, 0.0)


def stack(*trees: Any) -> Any:
  return jax.tree.map(lambda *x: jnp.stack(x), *trees)


# Golden values.


@pytest.fixture
def case(request: pytest.FixtureRequest) -> goldens.Case:
  path = None
  if request.param == 'disco103_a3':
    path = request.getfixturevalue('disco103_path')
  return goldens.make_case(request.param, path)


def make_living(
  case: goldens.Case, config: living_lib.LivingConfig
) -> living_lib.Living:
  """The agent of a golden file."""
  num_actions = int(case.golden.input('config/A'))
  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((6,), jnp.float32), num_actions
  )
  agent = agent_lib.Agent(
    config=agent_lib.AgentConfig(batch_size=8, replay_ratio=1.0),
    environment_spec=spec,
    rule=case.rule,
    network=case.network,
    optimizer=case.optimizer,
  )
  value = meta_value.MetaValue(meta_value.MetaValueConfig((4,)), spec)
  return living_lib.Living(config, agent, value)


def cross_entropy(case: goldens.Case, params: types.Params) -> jax.Array:
  """The goldens' outer loss."""
  observation, probabilities = case.validation
  logits = case.network.policy(params, observation)
  terms = probabilities * jax.nn.log_softmax(logits)
  return -jnp.mean(jnp.sum(terms, axis=-1))


@pytest.mark.parametrize('mode', meta_gradient.MODES)
@pytest.mark.parametrize(
  'case', ['disco_small_a3', 'disco_small_a9', 'disco103_a3'], indirect=True
)
def test_golden_meta_gradient(case: goldens.Case, mode: str) -> None:
  num_updates = len(case.rollouts)
  save_every = num_updates if mode == 'plain' else 1
  config = living_lib.LivingConfig(num_updates, 8, save_every)
  estimator = meta_gradient.MetaGradient(
    make_living(case, config), NO_REGULARIZERS, mode
  )

  @goldens.quick_jit
  def run(
    rule_params: types.Params, state: learner.LearnerState, rollouts: Any
  ) -> tuple[jax.Array, types.Params]:
    def one(state: learner.LearnerState, rollout: types.Rollout) -> Any:
      after, update = learner.update(
        case.network, case.rule, case.optimizer, rule_params, state, rollout
      )
      return after, (state, update.gradient)

    last, (states, gradients) = jax.lax.scan(one, state, rollouts)
    segments = lambda x: x.reshape(-1, save_every, *x.shape[1:])
    trajectory = living_lib.Trajectory(
      states=jax.tree.map(lambda x: x[::save_every], states),
      batches=jax.tree.map(segments, rollouts),
      gradients=(
        jax.tree.map(segments, gradients) if save_every == 1 else None
      ),
    )
    loss, cotangent = jax.value_and_grad(
      functools.partial(cross_entropy, case)
    )(last.params)
    gradient, _ = estimator.sweep(rule_params, trajectory, last, cotangent)
    return loss, gradient

  loss, gradient = run(case.rule_params, case.state, stack(*case.rollouts))
  expected = case.golden.arrays['meta_gradient/loss']
  assert goldens.deviation(loss, expected) <= goldens.MORE_UPDATES
  goldens.assert_meta_gradient(case.golden, gradient)
