"""What estimators ask of the inner problem of an agent."""

from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl.agent import learner as learner_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import footprint
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import population
from disco_rl.runtime import sharding


def test_the_reward_is_a_mean_over_real_transitions() -> None:
  problem = inner_problem.AgentProblem(mock.Mock())
  validation: Any = mock.Mock(
    reward=jnp.array([[1.0, 2.0], [6.0, 100.0]]),
    mask=jnp.array([[True, True], [True, False]]),
  )
  assert problem.reward(validation) == 3


def test_an_outer_step_is_one_of_the_agents_optimizer() -> None:
  inner_loop: Any = mock.Mock()
  inner_loop.agent.optimizer = optax.chain(
    optax.add_decayed_weights(0.5), optax.sgd(0.1, momentum=0.9)
  )
  params = {'w': jnp.array([2.0, -4.0])}
  opt_state = inner_loop.agent.optimizer.init(params)
  gradient = {'w': jnp.array([1.0, 3.0])}
  _, opt_state = inner_loop.agent.optimizer.update(gradient, opt_state, params)
  state: Any = mock.Mock(
    learner=learner_lib.LearnerState(params, opt_state, rule_state=())
  )
  problem = inner_problem.AgentProblem(inner_loop)
  after = problem.outer_step(state, {'w': jnp.array([0.0, 1.0])})
  # With half of the weights the gradients are 2 and 1, then 1 and -1.
  momentum = np.array([1.0 + 0.9 * 2.0, -1.0 + 0.9 * 1.0])
  np.testing.assert_allclose(
    after['w'], [2.0, -4.0] - 0.1 * momentum, rtol=1e-6
  )
  assert problem.learner(state) is state.learner


def test_the_inner_loop_does_what_the_problem_asks() -> None:
  inner_loop: Any = mock.Mock()
  problem = inner_problem.AgentProblem(inner_loop)
  found: Any = problem.advance('environment', 'eta', 'state', 3)  # type: ignore[arg-type]
  inner_loop.advance.assert_called_once_with('environment', 'eta', 'state', 3)
  assert found is inner_loop.advance.return_value
  found = problem.run('environment', 'eta', 'state', 2)  # type: ignore[arg-type]
  inner_loop.run.assert_called_once_with('environment', 'eta', 'state', 2)
  found = problem.validate('environment', 'state')  # type: ignore[arg-type]
  inner_loop.validate.assert_called_once_with('environment', 'state')
  assert found is inner_loop.validate.return_value


def test_updates_without_trajectories_go_on_from_each_other() -> None:
  """The state is a number that each update doubles; then it adds eta."""

  def update(_: Any, environment: Any, eta: Any, member: Any, x: None) -> Any:
    assert environment == 'environment' and x is None
    return 2 * member + eta, ((), ())

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(inner_loop_lib.InnerLoop, '_update', update)
    inner_loop: Any = object.__new__(inner_loop_lib.InnerLoop)
    found = inner_loop.advance('environment', jnp.int32(1), jnp.int32(3), 4)
  assert found == 3 * 16 + 15


@pytest.mark.parametrize(
  ('meta_step', 'seeds'), [(0, [107, 109]), (5, [7007, 9009])]
)
def test_environments_of_this_process_have_seeds_of_their_own(
  meta_step: int, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
  made = mock.Mock(
    side_effect=lambda name, number, seed, _: (name, number, seed)
  )
  monkeypatch.setattr(build.registry, 'make', made)
  after = lambda seed, meta_step: 1001 * (seed - 100) * (meta_step == 5)
  monkeypatch.setattr(build.adapters, 'seed_after', after)
  config: Any = mock.Mock(seed=100, preprocessing='P')
  config.agent.num_environments = 4
  group: Any = mock.Mock(
    local_members=range(1, 3),
    names=['a', 'b', 'c', 'd'],
    numbers=[5, 7, 9, 11],
  )
  found = build._make_environments(config, group, meta_step)
  assert found == [('b', 4, seeds[0]), ('c', 4, seeds[1])]
  assert {call.args[3] for call in made.call_args_list} == {'P'}


@pytest.mark.parametrize(
  ('patience', 'since', 'is_over'),
  [(0, 9, False), (3, 2, False), (3, 3, True), (3, None, False)],
)
def test_discovery_ends_once_patience_does(
  patience: int, since: int | None, is_over: bool
) -> None:
  trainer: Any = mock.Mock()
  trainer._config.held_out.patience = patience
  selection: Any = since and mock.Mock(evaluations_since=since)
  found = meta_trainer.MetaTrainer._is_over(trainer, selection)
  assert found is is_over


def test_padding_has_numbers_of_its_own() -> None:
  """By them seeds differ; a group has agents 1 and 3 of five."""
  config: Any = mock.Mock(group_multiple=5, agents=5, members=[*'abcde'])
  names, numbers = build._padded(config, [1, 3])
  assert (names, numbers) == ((*'bdbdb',), (1, 3, 5, 6, 7))


def test_members_of_processes() -> None:
  """Two of three rows of devices are this process's, with two members each."""
  devices = [mock.Mock(process_index=index) for index in (1, 0, 0)]
  mesh = lambda rows: mock.Mock(
    devices=np.array(rows)[:, None],
    shape={sharding.AGENTS: len(rows), sharding.BATCH: 1},
  )
  inner_loop: Any = mock.Mock()
  inner_loop.agent.config.batch_size = 3
  inner_loop.config.validation_trajectories = 2
  config = population.GroupConfig(
    names=(*'abcdef',),
    numbers=(*range(6),),
    inner_loop=inner_loop,
    optimizer=mock.Mock(),
    chunk_size=4,
    mesh=mesh(devices),
    num_padding=1,
  )
  assert config.local_members == range(2, 6)
  assert config.counts.tolist() == 5 * [True] + [False]
  # The largest divisor of two that is allowed.
  assert config.chunk == 2
  other = mesh(devices[:1])
  alone = footprint.config_on_one_row(config, other, 2)
  assert alone.local_members == range(0)
  assert (alone.names, alone.numbers) == (('a', 'b'), (0, 1))
  assert alone.num_padding == 0
  assert alone.mesh is other
