"""Rollouts record what happened, on the device and on the host."""

from collections.abc import Iterator
import dataclasses
import threading
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import small

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import host_actor
from disco_rl.agent import host_collector
from disco_rl.environments import base

LENGTH = 8
ENVIRONMENTS = 128
ACTIONS = 3
PLACES = 7
CORE = 8  # With a core, logits depend on the core's state.
SPEC = types.EnvironmentSpec(
  # Place, and steps since the episode began.
  observation=jax.ShapeDtypeStruct((2,), jnp.float32),
  num_actions=ACTIONS,
)
NO_HEADS = types.OutputSpec(state={}, action={})
NETWORK = small.network(SPEC, NO_HEADS, hidden_sizes=(16,), core_lstm=CORE)


def next_place(place: Any, action: Any) -> Any:
  """Episodes begin at places 1 to 6, and end at place 0."""
  return (3 * place + action) % PLACES


def reward_of(place: Any, action: Any) -> Any:
  return 10.0 * place + action


@types.record
class State:
  place: types.Array
  steps: types.Array


class Walk(base.JaxEnvironment):
  """The next place and the reward determine the place and the action."""

  spec = SPEC

  def reset(self, key: types.Array) -> tuple[State, types.Array]:
    state = State(jax.random.randint(key, (), 1, PLACES), jnp.int32(0))
    return state, self._observe(state)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    del key
    after = State(next_place(state.place, action), state.steps + 1)
    is_last = after.place == 0
    return after, types.TimeStep(
      observation=self._observe(after),
      reward=reward_of(state.place, action),
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def _observe(self, state: State) -> types.Array:
    return jnp.stack([state.place, state.steps]).astype(jnp.float32)


def params(seed: int) -> types.Params:
  """Parameters of a policy far from uniform that differs between places."""
  params = jax.tree.map(lambda x: 5.0 * x, NETWORK.init(jax.random.key(seed)))
  head = jax.tree.map(lambda x: 10.0 * x, params['agent/~/logits'])
  return {**params, 'agent/~/logits': head}


@pytest.fixture(scope='module')
def unroll() -> Any:
  """(parameters, seed) -> two consecutive rollouts and their `is_last`."""

  @jax.jit
  def run(params: types.Params, key: types.Array) -> Any:
    keys = jax.random.split(key, 3)
    environment = Walk()
    state = actor.init(keys[0], NETWORK, environment, ENVIRONMENTS)
    rollouts = []
    for key in keys[1:]:
      state, rollout, is_last = actor.unroll(
        NETWORK, environment, params, state, key, LENGTH
      )
      rollouts.append((rollout, is_last))
    return rollouts

  return lambda params, seed: jax.device_get(run(params, jax.random.key(seed)))


def test_rewards_and_observations_follow_actions(unroll: Any) -> None:
  for rollout, is_last in unroll(params(0), 0):
    place, steps = np.moveaxis(rollout.observation, -1, 0)
    action = rollout.action[:-1]
    np.testing.assert_array_equal(rollout.reward, reward_of(place[:-1], action))
    after = next_place(place[:-1], action)
    np.testing.assert_array_equal(is_last, after == 0)
    np.testing.assert_array_equal(rollout.is_terminal, is_last)
    assert is_last.any() and not is_last.all()
    # Where the episode ended, its last observation is never seen.
    np.testing.assert_array_equal(place[1:] == after, ~is_last)
    np.testing.assert_array_equal(
      steps[1:], np.where(is_last, 0, steps[:-1] + 1)
    )
    assert rollout.mask.all()


def test_shapes_and_types_are_those_of_the_record(unroll: Any) -> None:
  rollout, is_last = unroll(params(0), 0)[0]
  shapes = jax.tree.map(lambda x: (x.shape, x.dtype.name), rollout)
  assert shapes == types.Rollout(
    observation=((LENGTH + 1, ENVIRONMENTS, 2), 'float32'),
    action=((LENGTH + 1, ENVIRONMENTS), 'int32'),
    logits=((LENGTH + 1, ENVIRONMENTS, ACTIONS), 'float32'),
    reward=((LENGTH, ENVIRONMENTS), 'float32'),
    is_terminal=((LENGTH, ENVIRONMENTS), 'bool'),
    mask=((LENGTH, ENVIRONMENTS), 'bool'),
    core_state=hk.LSTMState(*2 * [((1, ENVIRONMENTS, CORE), 'float32')]),
  )
  assert (is_last.shape, is_last.dtype.name) == ((LENGTH, ENVIRONMENTS), 'bool')


def test_consecutive_rollouts_join(unroll: Any) -> None:
  (first, _), (second, _) = unroll(params(0), 0)
  np.testing.assert_array_equal(first.observation[-1], second.observation[0])


def test_logits_are_those_of_what_was_observed(unroll: Any) -> None:
  for rollout, _ in unroll(params(0), 0):
    np.testing.assert_allclose(
      rollout.logits, NETWORK.policy(params(0), rollout), rtol=1e-5, atol=1e-5
    )


def test_the_core_is_reset_between_episodes(unroll: Any) -> None:
  (first, is_last), (second, _) = unroll(params(0), 0)
  forgetful = dataclasses.replace(
    second, core_state=jax.tree.map(jnp.zeros_like, second.core_state)
  )
  differs = np.abs(NETWORK.policy(params(0), forgetful) - second.logits) > 1e-4
  continues = ~is_last[-1]
  # What was seen in the rollout before matters where its episode goes on,
  np.testing.assert_array_equal(differs[0].any(axis=-1), continues)
  # until it ends.
  ended = np.cumsum(second.is_terminal, axis=0) > 0
  assert not differs[1:][ended].any()
  assert differs[1:][~ended].any()


def test_rollouts_depend_on_the_key(unroll: Any) -> None:
  (once, _), (later, _) = unroll(params(0), 0)
  (again, _), _ = unroll(params(0), 0)
  (other, _), _ = unroll(params(0), 1)
  jax.tree.map(np.testing.assert_array_equal, once, again)
  assert (once.action != other.action).any()
  assert (once.action != later.action).any()


def test_actions_are_as_frequent_as_the_policy_says(unroll: Any) -> None:
  rollouts = [r for seed in range(8) for r, _ in unroll(params(0), seed)]
  place = np.concatenate([r.observation[..., 0].ravel() for r in rollouts])
  action = np.concatenate([r.action.ravel() for r in rollouts])
  policy = np.concatenate(
    [jax.nn.softmax(r.logits).reshape(-1, ACTIONS) for r in rollouts]
  )
  for here in range(1, PLACES):
    at = place == here
    assert_drawn_from(np.eye(ACTIONS)[action[at]], policy[at])
  # Otherwise the test would be void.
  assert np.ptp(policy, axis=0).max() > 0.3


def test_actions_are_drawn_independently(unroll: Any) -> None:
  uniform = jax.tree.map(jnp.zeros_like, params(0))
  action = np.stack(
    [
      rollout.action
      for seed in range(4)
      for rollout, _ in unroll(uniform, seed)
    ]
  )
  pairs = {
    'time': (action[:, 1:], action[:, :-1]),
    'environments': (action[..., 1:], action[..., :-1]),
    'rollouts': (action[1:], action[:-1]),
  }
  for first, second in pairs.values():
    pair = np.eye(ACTIONS**2)[(ACTIONS * first + second).ravel()]
    assert_drawn_from(pair, np.full(pair.shape, 1 / ACTIONS**2))


def assert_drawn_from(drawn: np.ndarray, probability: np.ndarray) -> None:
  """Pearson's test: one-hot draws [n, k] of distributions [n, k]."""
  expected = probability.sum(axis=0)
  statistic = np.sum((drawn.sum(axis=0) - expected) ** 2 / expected)
  assert statistic < scipy.stats.chi2.isf(1e-4, drawn.shape[1] - 1)


AGENTS = 3
EACH = 2


@dataclasses.dataclass
class HostWalk(base.HostEnvironment):
  """Deterministic; the step after the last of an episode is a dummy."""

  num_environments: int = AGENTS * EACH
  spec = types.EnvironmentSpec(
    observation={
      'name': jax.ShapeDtypeStruct((), jnp.int32),
      'place': jax.ShapeDtypeStruct((2,), jnp.float32),
    },
    num_actions=ACTIONS,
  )

  def reset(self) -> types.PyTree:
    self.actions: list[np.ndarray] = []
    self.steps = np.zeros(self.num_environments, int)
    self.place = self._first_place()
    self.is_over = np.zeros(self.num_environments, bool)
    return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    assert isinstance(action, np.ndarray)
    assert action.dtype == np.int32
    self.actions.append(action)
    dummy = self.is_over
    reward = np.where(dummy, 0, reward_of(self.place, action))
    self.steps = np.where(dummy, 0, self.steps + 1)
    self.place = np.where(
      dummy, self._first_place(), next_place(self.place, action)
    )
    self.is_over = ~dummy & (self.place == 0)
    outcome: dict[str, Any] = {
      'reward': reward.astype(np.float32),
      'is_terminal': self.is_over | dummy,
      'is_last': self.is_over,
      'mask': ~dummy,
    }
    return types.TimeStep(observation=self._observe(), **outcome)

  def close(self) -> None:
    pass

  def _first_place(self) -> np.ndarray:
    return 1 + np.arange(self.num_environments) % (PLACES - 1)

  def _observe(self) -> types.PyTree:
    return {
      'name': np.arange(self.num_environments, dtype=np.int32),
      'place': np.stack([self.place, self.steps], -1).astype(np.float32),
    }


HOST_NETWORK = small.network(
  HostWalk.spec, NO_HEADS, hidden_sizes=(16,), core_lstm=CORE
)


@dataclasses.dataclass
class HostRollouts:
  """Two consecutive rollouts of the agents, and the actions received."""

  params: types.Params
  rollouts: list[tuple[Any, np.ndarray]]
  actions: np.ndarray


def act_on_host(seed: int, scale: float = 1.0) -> HostRollouts:
  environment = HostWalk()
  host = host_actor.HostActor(HOST_NETWORK, environment, AGENTS)
  of_agents = jax.jit(jax.vmap(HOST_NETWORK.init))(
    jax.random.split(jax.random.key(0), AGENTS)
  )
  of_agents = jax.tree.map(lambda x: scale * x, of_agents)
  rollouts = []
  for key in jax.random.split(jax.random.key(seed), 2):
    rollout, is_last = host.unroll(
      of_agents, jax.random.split(key, AGENTS), LENGTH
    )
    rollouts.append((jax.device_get(rollout), is_last))
  return HostRollouts(of_agents, rollouts, np.stack(environment.actions))


@pytest.fixture(scope='module')
def host_rollouts() -> Iterator[HostRollouts]:
  yield act_on_host(seed=0)


def test_host_rewards_and_observations_follow_actions(
  host_rollouts: HostRollouts,
) -> None:
  for acted in host_rollouts.rollouts:
    # From [S, T, E] to time first, as above.
    rollout, is_last = jax.tree.map(lambda x: np.moveaxis(x, 1, 0), acted)
    place, steps = np.moveaxis(rollout.observation['place'], -1, 0)
    action, real = rollout.action[:-1], rollout.mask
    after = next_place(place[:-1], action)
    np.testing.assert_array_equal(
      rollout.reward, np.where(real, reward_of(place[:-1], action), 0)
    )
    np.testing.assert_array_equal(place[1:][real], after[real])
    np.testing.assert_array_equal(steps[1:], np.where(real, steps[:-1] + 1, 0))
    np.testing.assert_array_equal(is_last, real & (after == 0))
    np.testing.assert_array_equal(rollout.is_terminal, is_last | ~real)
    # What follows the end of an episode must not be learned from.
    np.testing.assert_array_equal(~real[1:], is_last[:-1])
    assert not real.all()


def test_host_rollouts_join(host_rollouts: HostRollouts) -> None:
  (first, _), (second, _) = host_rollouts.rollouts
  jax.tree.map(
    lambda x, y: np.testing.assert_array_equal(x[:, -1], y[:, 0]),
    first.observation,
    second.observation,
  )


def test_host_environments_stay_with_their_agents(
  host_rollouts: HostRollouts,
) -> None:
  names = np.arange(AGENTS * EACH).reshape(AGENTS, 1, EACH)
  for i, (rollout, is_last) in enumerate(host_rollouts.rollouts):
    assert rollout.observation['name'].shape == (AGENTS, LENGTH + 1, EACH)
    assert is_last.shape == rollout.reward.shape == (AGENTS, LENGTH, EACH)
    np.testing.assert_array_equal(
      rollout.observation['name'],
      np.broadcast_to(names, (AGENTS, LENGTH + 1, EACH)),
    )
    # What an agent chose is what was done in its environments.
    done = host_rollouts.actions[i * LENGTH : (i + 1) * LENGTH]
    np.testing.assert_array_equal(
      np.moveaxis(rollout.action[:, :-1], 0, 1).reshape(LENGTH, -1), done
    )


def test_host_logits_are_those_of_the_agents_own_policies(
  host_rollouts: HostRollouts,
) -> None:
  for rollout, _ in host_rollouts.rollouts:
    want = jax.vmap(HOST_NETWORK.policy)(host_rollouts.params, rollout)
    np.testing.assert_allclose(rollout.logits, want, rtol=1e-5, atol=1e-5)
    assert np.ptp(rollout.logits, axis=0).max() > 1e-3


def test_host_rollouts_depend_on_the_key(host_rollouts: HostRollouts) -> None:
  np.testing.assert_array_equal(
    act_on_host(seed=0).actions, host_rollouts.actions
  )
  (first, _), (second, _) = host_rollouts.rollouts
  assert (first.action != second.action).any()


def test_host_actions_are_drawn_independently() -> None:
  # All policies are uniform, so that draws alone decide.
  acted = act_on_host(seed=0, scale=0.0)
  for rollout, _ in acted.rollouts:
    action = np.moveaxis(rollout.action, 1, 0).reshape(LENGTH + 1, -1)
    assert len(np.unique(action, axis=1).T) == AGENTS * EACH
    assert (np.ptp(action, axis=0) > 0).all()


# The updates after which the parameters are that act, and the rollouts so far.
Acting = tuple[int, int]


def hand_over(updates: int, acting: Acting) -> Acting:
  return updates, acting[1]


def test_environments_step_while_the_device_learns() -> None:
  """Batches contain the numbers of rollouts and of updates so far."""
  is_learning, has_acted = threading.Event(), threading.Event()
  seconds = 60
  batches = []

  def collect(acting: Acting) -> tuple[Acting, tuple[int, int]]:
    updates, rollouts = acting
    rollouts += 1
    if rollouts > 1:
      assert is_learning.wait(seconds), 'acting waits for learning'
      is_learning.clear()
      has_acted.set()
    return (updates, rollouts), (rollouts, updates)

  def learn(updates: int, batch: tuple[int, int]) -> int:
    batches.append(batch)
    if batch[0] < 4:  # The next rollout is acted meanwhile.
      is_learning.set()
      assert has_acted.wait(seconds), 'learning waits for acting'
      has_acted.clear()
    return updates + 1

  after = host_collector.collect_while_learning(
    0, (0, 0), 4, hand_over, collect, learn
  )
  assert after == (4, (3, 4))
  # The first by agents as they are, later ones by those of one update before.
  assert batches == [(1, 0), (2, 0), (3, 1), (4, 2)]


def test_a_request_to_stop_ends_with_what_has_been_collected() -> None:
  batches: list[int] = []

  def learn(updates: int, batch: int) -> int:
    batches.append(batch)
    return updates + 1

  after = host_collector.collect_while_learning(
    *(0, (0, 0), 9, hand_over),
    lambda acting: ((acting[0], acting[1] + 1), acting[1]),
    learn,
    lambda: len(batches) >= 2,
  )
  # Of as many rollouts as updates, so that none is acted in vain.
  assert after == (len(batches), (len(batches) - 1, len(batches)))
  assert len(batches) in (3, 4)


def test_an_error_of_an_environment_ends_acting_and_learning() -> None:
  def collect(acting: Acting) -> tuple[Acting, int]:
    updates, rollouts = acting
    if rollouts == 1:
      raise RuntimeError('out of order')
    return (updates, rollouts + 1), updates

  with pytest.raises(RuntimeError, match='out of order'):
    host_collector.collect_while_learning(
      0, (0, 0), 3, hand_over, collect, lambda state, batch: state + batch
    )
