"""Tests of what the programs of a training depend on."""

from typing import Any
from unittest import mock

import discovering
import jax
import numpy as np

from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base as environment_base
from disco_rl.environments import registry
from disco_rl.environments.jax_native import catch
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.training import base
from disco_rl.training import parallel
from disco_rl.update_rules import actor_critic

RULE = actor_critic.ActorCritic(num_bins=5, max_abs_value=2.0)


class Constant(environment_base.JaxEnvironment):
  """Catch that is no tree, as users may bring it."""

  _inner = catch.Catch(rows=3, columns=3)
  spec = _inner.spec

  def reset(self, key):
    """Implements it as Catch does."""
    return self._inner.reset(key)

  def step(self, state, action, key):
    """Implements it as Catch does."""
    return self._inner.step(state, action, key)


class Failing(discovering.Counting):
  """Fails in its fifth step, in the second rollout."""

  def step(self, action: Any) -> Any:
    """Implements it as Counting does."""
    if self._steps == 4:
      raise OSError('broken')
    return super().step(action)


def make(environment: Any) -> base.Training:
  config = agent_lib.AgentConfig(
    network=agent_network.AgentNetworkConfig(
      torsos.TorsoConfig(hidden_sizes=(8,))
    ),
    unroll_length=3,
    batch_size=2,
    num_environments=2,
    on_policy_share=1.0,
    replay_capacity=2,
  )
  agent = agent_lib.make(config, environment.spec, RULE)
  return parallel.make(agent, environment, num_agents=1)


def texts(agents: base.Training) -> list[str]:
  """The programs in StableHLO, by which compiled ones are found again."""
  return [
    program.trace(*arguments).lower(lowering_platforms=('cpu',)).as_text()
    for program, arguments in agents.calls({})
  ]


def test_tasks_of_one_shape_share_their_programs() -> None:
  one, other = (
    texts(make(registry.make(f'gridworld/{name}', 1, 0)))
    for name in ('00', '18')
  )
  assert one == other


def test_an_environment_that_is_no_tree_is_trained_in() -> None:
  agents = make(Constant())
  keys = jax.vmap(jax.random.key)(np.arange(1))
  state, _ = agents.advance({}, agents.init(keys), 4)
  # Twelve steps in each of two environments, whose episodes take two.
  assert state.acting.episodes.finished.tolist() == [12]


def test_only_programs_that_run_often_are_optimized() -> None:
  """Agents are made once."""
  agents = make(Constant())
  assert not agents._init._runs_often
  others = [program for program, _ in agents.calls({})]
  assert others.pop() is agents._init
  assert others and all(program._runs_often for program in others)


def test_episodes_that_cannot_be_resumed_begin_again() -> None:
  agents = make(discovering.Counting(0))
  assert isinstance(agents, parallel.HostTraining)
  state = agents.init(jax.vmap(jax.random.key)(np.arange(1)))
  state = discovering.in_episodes(state)
  saved = agents.cohort.save_episodes()
  actor = agents.cohort.collector.actor
  actor.must_restart = True
  resumed = agents.cohort.resume(state, saved)
  assert resumed.acting is state.acting
  assert not actor.must_restart
  jax.tree.map(
    np.testing.assert_array_equal, agents.cohort.save_episodes(), saved
  )
  resumed = agents.cohort.resume(state)
  assert actor.must_restart and agents.cohort.save_episodes() is None
  assert (resumed.acting.episodes.running == 0).all()
  assert (resumed.acting.episodes.finished == 1).all()
  assert resumed.learner is state.learner
  assert resumed.acting.params is state.acting.params


def test_logs_are_means_over_rollouts() -> None:
  """A rollout in the first call, then as many as the clock allows."""
  agents: Any = mock.Mock(_fixed_seconds=0.0, _rollouts_per_call=1)
  agents.agent.config = mock.Mock(
    rollouts=lambda updates: updates // 2, updates=lambda rollouts: 2 * rollouts
  )
  agents._replicate = agents._split = lambda x: x
  agents._zeros.return_value = np.zeros(2)
  # Rollouts are counted by the state, and log their numbers.
  agents._advance = mock.Mock(
    side_effect=lambda _, state, sums, *rest: (
      state + rest[-1],
      sums + [sum(range(state, state + rest[-1])), rest[-1]],
    )
  )
  outcome = parallel.DeviceTraining.attempt(agents, {}, 0, 20, lambda: False)
  assert outcome.train_state == 10 and outcome.num_updates == 20
  assert outcome.logs.tolist() == [4.5, 1.0]


def test_environments_that_failed_are_not_saved() -> None:
  """They are in the middle of a rollout that no return counts."""
  agents = make(Failing(0))
  state = agents.init(jax.vmap(jax.random.key)(np.arange(1)))
  assert agents.cohort.save_episodes() is not None
  outcome = agents.attempt({}, state, 2, should_stop=lambda: False)
  assert isinstance(outcome.failure, OSError)
  assert outcome.num_updates == 1
  assert agents.cohort.save_episodes() is None
