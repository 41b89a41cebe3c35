"""Agents: settings, training in parallel, and learning on probes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import probes
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.agent import host_collector
from disco_rl.agent import replay
from disco_rl.environments import base as environment_base
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.jax_native import catch
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import compilation
from disco_rl.runtime import files
from disco_rl.runtime import memory
from disco_rl.training import parallel
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base as rule_base
from disco_rl.update_rules import policy_gradient

SMALL = agent_lib.AgentConfig(
  network=agent_network.AgentNetworkConfig(
    torso=torsos.TorsoConfig(hidden_sizes=(16,))
  ),
  unroll_length=8,
  batch_size=16,
  num_environments=8,
  on_policy_share=0.25,
  replay_capacity=64,
  learning_rate=1e-2,
)
BINS: dict[str, Any] = {'num_bins': 41, 'max_abs_value': 3.0}


def test_a_fraction_of_each_batch_is_the_newest() -> None:
  agent = agent_lib.make(
    SMALL, probes.Probe.spec, actor_critic.ActorCritic(**BINS)
  )
  add_and_sample = jax.jit(agent.add_and_sample)
  acting = jax.jit(agent.init_acting)(jax.random.split(jax.random.key(0))[1])
  memory = agent.empty_replay()
  ages: set[int] = set()
  for i in range(12):
    numbers = 100 * i + np.arange(SMALL.num_environments)
    newest = numbered(memory.rollouts, numbers)
    acting, memory, (slots,) = jax.device_get(
      add_and_sample(acting, memory, newest)
    )
    batch = jax.device_get(replay.gather_slots(memory, slots))
    chosen = batch.action[0]
    assert len(chosen) == SMALL.batch_size
    np.testing.assert_array_equal(chosen[:4], numbers[:4])
    jax.tree.map(
      np.testing.assert_array_equal,
      batch,
      numbered(memory.rollouts, chosen),
    )
    ages |= set(i - chosen[4:] // 100)
  # The rest is from all of replay, the newest included.
  assert ages == set(range(8))


def test_each_trajectory_is_new_in_one_batch_of_several() -> None:
  """Crafter's: 0.24 new ones in a batch of 24, 4 batches for each rollout."""
  config = dataclasses.replace(
    SMALL,
    batch_size=24,
    num_environments=1,
    updates_per_rollout=4,
    on_policy_share=0.01,
  )
  assert config.num_on_policy == (1, 0, 0, 0)
  assert config.actions_per_update == SMALL.unroll_length / 4
  config = dataclasses.replace(
    config, num_environments=8, on_policy_share=7 / 96
  )
  agent = agent_lib.make(
    config, probes.Probe.spec, actor_critic.ActorCritic(**BINS)
  )
  for added in (8, 24, 800):
    slots = np.asarray(agent.sample_slots(jax.random.key(added), added))
    assert slots.shape == (4, 24)
    newest = [*slots[0, :2], *slots[1, :2], *slots[2, :2], *slots[3, :1]]
    assert newest == [(added - 8 + i) % 64 for i in range(7)]
    drawn = np.concatenate([x[n:] for x, n in zip(slots, (2, 2, 2, 1))])
    assert len(np.unique(drawn)) > min(added, 64) / 2
    assert set(drawn) <= set(range(min(added, 64)))
    assert not (slots[0, 2:] == slots[1, 2:]).all()


@pytest.mark.parametrize(
  ('batches', 'changes', 'rollouts'),
  [
    (0.0, {}, 1),
    (1.0, {}, 2),
    (1.1, {}, 3),
    (9.0, {}, 8),  # Replay of 64 is full.
    (1.0, {'num_environments': 1, 'on_policy_share': 0.0}, 16),
    (1.0, {'batch_size': 8}, 1),
  ],
)
def test_rollouts_before_the_first_update(
  batches: float, changes: dict[str, Any], rollouts: int
) -> None:
  config = dataclasses.replace(SMALL, min_replay_batches=batches, **changes)
  assert config.first_rollouts == rollouts
  extra = (rollouts - 1) * config.num_environments * config.unroll_length
  assert config.actions(3) == 3 * config.actions_per_update + extra


def test_several_updates_follow_each_rollout() -> None:
  """The first follow a third rollout, when replay holds three batches."""
  config = dataclasses.replace(
    SMALL, updates_per_rollout=2, batch_size=8, min_replay_batches=3
  )
  environment = catch.Catch(4, 3)
  agent = agent_lib.make(
    config, environment.spec, actor_critic.ActorCritic(**BINS)
  )
  agents = parallel.make(agent, environment, 1)
  start = agents.init(KEYS[:1])
  state = jax.tree.map(lambda x: x[0], start)
  trained, _ = agents.advance({}, start, 4)

  @jax.jit
  def step(state: Any) -> Any:
    learned = state.learner
    acting, rollout = agent.act(environment, learned.params, state.acting)
    acting, memory, slots = agent.add_and_sample(acting, state.replay, rollout)
    for own in slots:
      learned, _ = agent.learn({}, learned, replay.gather_slots(memory, own))
    return agent_lib.AgentState(learned, acting, memory)

  @jax.jit
  def act(state: Any) -> Any:
    acting, rollout = agent.act(environment, state.learner.params, state.acting)
    filled = replay.add(state.replay, rollout)
    return dataclasses.replace(state, acting=acting, replay=filled)

  state = step(step(act(act(state))))
  assert state.replay.added == 32
  # Four rollouts of eight steps in eight environments.
  assert agent.environment_steps(4) == agents.agent.config.actions(4) == 256
  assert agent.environment_steps(0) == 0
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x[0], y, rtol=1e-4, atol=1e-5),
    numbers(trained),
    numbers(state),
  )


class Circle(environment_base.HostEnvironment):
  """A walk around four places that begins in the same one at each reset."""

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((4,), jnp.float32), num_actions=3
  )
  num_environments = SMALL.num_environments

  def reset(self) -> types.PyTree:
    self._place = np.arange(self.num_environments) % 4
    return np.eye(4, dtype=np.float32)[self._place]

  def step(self, action: Any) -> types.TimeStep:
    self._place = (self._place + action) % 4
    nothing: Any = np.zeros(self.num_environments, bool)
    return types.TimeStep(
      observation=np.eye(4, dtype=np.float32)[self._place],
      reward=(self._place == 3).astype(np.float32),  # type: ignore[arg-type]
      is_terminal=nothing,
      is_last=nothing,
      mask=~nothing,
    )

  def close(self) -> None:
    pass


NORMALIZING = dataclasses.replace(
  SMALL,
  network=dataclasses.replace(SMALL.network, normalize_observations=True),
  normalize_rewards=True,
)


@pytest.mark.parametrize('number', [1, 2])
def test_calls_on_the_host_add_up(number: int) -> None:
  """Bit for bit, also where a request to stop ends one of them."""
  config = dataclasses.replace(
    SMALL if number == 1 else NORMALIZING,
    updates_per_rollout=number,
    on_policy_share=0.25,
  )
  agent = agent_lib.make(config, Circle.spec, actor_critic.ActorCritic(**BINS))
  agents = parallel.make(agent, Circle(), 1)
  whole, _ = agents.advance({}, agents.init(KEYS[:1]), 8)
  assert whole.replay['added'].tolist() == [64 // number]
  expected = numbers((whole.learner, whole.acting))
  state = agents.init(KEYS[:1])
  for updates in (number, 4):
    state, _ = agents.advance({}, state, updates)
  stopped = agents.attempt({}, state, 4 - number, lambda: True)
  assert stopped.num_updates == number
  state = stopped.train_state
  if updates := 4 - 2 * number:
    state, _ = agents.advance({}, state, updates)
  got = numbers((state.learner, state.acting))
  jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_statistics_on_the_host_are_those_of_the_device() -> None:
  """Agents make equal rollouts, and learn from equal batches."""
  config = dataclasses.replace(
    NORMALIZING, batch_size=8, on_policy_share=1.0, replay_capacity=8
  )
  agent = agent_lib.make(config, Circle.spec, actor_critic.ActorCritic(**BINS))
  collector = host_collector.HostCollector(agent, Circle(), 1)
  rollouts, actual = [], collector.actor.unroll

  def unroll(*args: Any) -> Any:
    rollouts.append(actual(*args))
    return rollouts[-1]

  collector.actor.unroll = unroll  # type: ignore[method-assign]
  agents = jax.jit(jax.vmap(functools.partial(host_collector.init, agent)))(
    KEYS[:1]
  )
  acting = agents.acting
  state = jax.tree.map(lambda x: x[0], agents)
  statistics, rewards = state.acting.episodes, state.acting.rewards
  learn = jax.jit(lambda state, batch: agent.learn({}, state, batch)[0])
  learners = learner = state.learner
  for _ in range(2):
    acting, (batch,) = collector.act_and_sample(acting)
    learners = learn(learners, jax.tree.map(lambda x: x[0], batch))
    rollout, is_last = jax.tree.map(lambda x: x[0], rollouts[-1])
    statistics, rewards = agent.count(
      statistics, rewards, rollout.reward, is_last
    )
    learner = learn(learner, agent.normalize_rewards(rewards, rollout))
  equal = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
  jax.tree.map(equal, jax.tree.map(lambda x: x[0], acting.rewards), rewards)
  assert rewards is not None
  assert rewards.returns.count == 2 * 8 * 8
  jax.tree.map(equal, learners, learner)


def test_updates_that_break_a_rollout_are_refused() -> None:
  config = dataclasses.replace(SMALL, updates_per_rollout=4, on_policy_share=0)
  assert config.whole(9) == 12
  with pytest.raises(ValueError, match='updates=9 must be .* the next is 12'):
    config.rollouts(9)
  dataclasses.replace(config, on_policy_share=0.5)  # Four epochs.
  with pytest.raises(ValueError, match=r'must be at most 0\.5: .*=16 traj'):
    dataclasses.replace(config, on_policy_share=0.6)


def numbered(like: types.Rollout, numbers: np.ndarray) -> types.Rollout:
  """Trajectories whose entries are all their number."""
  return jax.tree.map(
    lambda x: np.broadcast_to(
      numbers.reshape(-1, *[1] * (x.ndim - 2)),
      (x.shape[0], len(numbers), *x.shape[2:]),
    ).astype(x.dtype),
    like,
  )


class Counting(catch.Catch):
  """Counts how often JAX traces a step."""

  traces = 0

  def step(self, *args: Any) -> Any:
    Counting.traces += 1
    return super().step(*args)


KEYS = jax.random.split(jax.random.key(7), 3)


def make_agents() -> parallel.DeviceTraining:
  environment = Counting(4, 3)
  agent = agent_lib.make(
    SMALL, environment.spec, actor_critic.ActorCritic(**BINS)
  )
  return parallel.DeviceTraining(agent, environment)


@pytest.fixture(scope='module')
def agents() -> parallel.DeviceTraining:
  return make_agents()


def numbers(tree: Any) -> Any:
  """Converts leaves to NumPy arrays, also PRNG keys."""
  return jax.tree.map(lambda x: np.asarray(files.to_data(x)), tree)


def test_calls_add_up(agents: parallel.DeviceTraining) -> None:
  once, logs = agents.advance({}, agents.init(KEYS), 10)
  train_state, first = agents.advance({}, agents.init(KEYS), 5)
  twice, second = agents.advance({}, train_state, 5)
  jax.tree.map(np.testing.assert_array_equal, numbers(once), numbers(twice))
  jax.tree.map(
    lambda whole, *halves: np.testing.assert_allclose(
      whole, np.mean(halves, axis=0), rtol=1e-4, atol=1e-6
    ),
    logs,
    first,
    second,
  )
  steps = 10 * SMALL.unroll_length * SMALL.num_environments
  # An episode of Catch on four rows takes three steps.
  np.testing.assert_array_equal(once.acting.episodes.finished // 100, 2)
  assert (once.replay.added == steps // SMALL.unroll_length).all()


def test_calls_of_any_length_give_the_same_results(
  agents: parallel.DeviceTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Bit for bit: how long calls take must not show in the metrics."""
  run = agents._advance
  lengths: list[int] = []

  class Noted:
    compile = run.compile

    def __call__(self, *arguments: Any) -> Any:
      lengths.append(int(arguments[-1]))
      return run(*arguments)

  monkeypatch.setattr(agents, '_advance', Noted())
  monkeypatch.setattr(agents, '_fixed_seconds', None)
  monkeypatch.setattr(parallel, '_CALL_SECONDS', 1e9)
  monkeypatch.setattr(agents, '_rollouts_per_call', 10**9)
  whole = agents.advance({}, agents.init(KEYS), 10)
  assert lengths == [0, 10]  # The first measures the fixed time.
  # The first call of one update says how many make a second.
  monkeypatch.setattr(agents, '_rollouts_per_call', 1)
  parts = agents.advance({}, agents.init(KEYS), 10)
  assert lengths == [0, 10, 1, 9]
  jax.tree.map(np.testing.assert_array_equal, numbers(whole), numbers(parts))


@pytest.mark.parametrize(
  ('number', 'seconds', 'fixed', 'expected'),
  [
    (1, 0.25, 0.0, 4),
    (1, 3.5, 3.0, 2),  # Copies take longer than the rollout.
    (10, 4.0, 3.0, 10),
    (1, 30.0, 0.0, 1),
    (2, 1.0, 5.0, 20),  # The empty call was slow: at most ten times as many.
  ],
)
def test_the_fixed_time_of_a_call_does_not_shorten_calls(
  number: int, seconds: float, fixed: float, expected: int
) -> None:
  assert parallel._next_number(number, seconds, fixed) in (
    expected - 1,  # Rounded down.
    expected,
  )


def test_a_request_to_stop_waits_for_one_call(
  agents: parallel.DeviceTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(parallel, '_CALL_SECONDS', 0.0)
  monkeypatch.setattr(agents, '_rollouts_per_call', 1)
  answers = iter([False, False, True])
  stopped = agents.attempt({}, agents.init(KEYS), 10, lambda: next(answers))
  assert stopped.num_updates == 3
  expected = agents.advance({}, agents.init(KEYS), 3)
  jax.tree.map(
    np.testing.assert_array_equal,
    numbers((stopped.train_state, stopped.logs)),
    numbers(expected),
  )


def test_one_program_for_any_number_of_updates(
  agents: parallel.DeviceTraining,
) -> None:
  train_state, _ = agents.advance({}, agents.init(KEYS), 1)
  traces, seconds = Counting.traces, compilation.seconds()
  assert traces > 0
  assert seconds > 0
  for num_updates in (2, 3):
    train_state, _ = agents.advance({}, train_state, num_updates)
  assert Counting.traces == traces
  assert compilation.seconds() == seconds


def test_the_state_that_is_passed_in_is_donated(
  agents: parallel.DeviceTraining,
) -> None:
  train_state = agents.init(KEYS)
  agents.advance({}, train_state, 1)
  kept = [
    jax.tree_util.keystr(path)
    for path, leaf in jax.tree.leaves_with_path(train_state)
    if not leaf.is_deleted()
  ]
  assert not kept, f'not donated: {kept}'


def test_agents_share_nothing(agents: parallel.DeviceTraining) -> None:
  together, logs = agents.advance({}, agents.init(KEYS), 4)
  one = make_agents()
  alone, logs_alone = one.advance({}, one.init(KEYS[1:2]), 4)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x[1:2], y, rtol=1e-3, atol=1e-4),
    numbers((together, logs)),
    numbers((alone, logs_alone)),
  )
  params = numbers(together.learner.params)
  assert all((x[0] != x[1]).any() for x in jax.tree.leaves(params) if x.any())


def test_replay_on_the_host_takes_no_memory_of_the_device() -> None:
  """All that is left of it in the agents' state are counts."""
  environment = gymnasium_adapter.make('CartPole-v1', 2, seed=0)
  config = dataclasses.replace(
    SMALL, batch_size=2, num_environments=1, replay_capacity=50_000
  )
  agent = agent_lib.make(
    config, environment.spec, actor_critic.ActorCritic(**BINS)
  )
  host = parallel.make(agent, environment, num_agents=2)
  state = host.init(KEYS[:2])
  on_device = agent.empty_replay
  assert memory.tree_bytes(jax.eval_shape(on_device)) > 10_000_000
  for _ in range(2):
    state, _ = host.advance({}, state, 1)
  assert memory.tree_bytes(state) < 1_000_000
  np.testing.assert_array_equal(state.replay['added'], [2, 2])
  environment.close()


RULES: dict[str, rule_base.UpdateRule] = {
  # Lambda 0: values come from the next value alone, by bootstrapping.
  'actor_critic': actor_critic.ActorCritic(
    **BINS, discount=0.5, lambda_=0.0, entropy_cost=0.01
  ),
  'policy_gradient': policy_gradient.PolicyGradient(
    **BINS, discount=0.5, entropy_cost=0.01
  ),
}


@dataclasses.dataclass(frozen=True)
class Trained:
  """One agent per kind of probe; values by kind, cue (-1, 1) and step (0, 1).

  Attributes:
    value: [kinds, cues, steps].
    policy: [kinds, cues, steps], probability of action 1.
  """

  value: np.ndarray
  policy: np.ndarray


@pytest.mark.parametrize('core_lstm, solves', [(8, True), (0, False)])
def test_only_an_agent_with_a_core_recalls(
  core_lstm: int, solves: bool
) -> None:
  network = dataclasses.replace(SMALL.network, core_lstm=core_lstm)
  agent = agent_lib.make(
    dataclasses.replace(SMALL, network=network),
    probes.Probe.spec,
    RULES['actor_critic'],
  )
  probe = probes.Probe(jnp.int32(probes.Kind.RECALL))
  agents = parallel.DeviceTraining(agent, probe)
  train_state = agents.init(jax.random.split(jax.random.key(0), 1))
  train_state, _ = agents.advance({}, train_state, 300)
  (reward,) = jax.vmap(episodes.mean_return)(train_state.acting.episodes)
  assert reward > 0.9 if solves else abs(reward) < 0.3


@pytest.fixture(scope='module', params=RULES)
def trained(request: pytest.FixtureRequest) -> Trained:
  agent = agent_lib.make(SMALL, probes.Probe.spec, RULES[request.param])

  @jax.jit
  @jax.vmap
  def train(kind: types.Array, key: types.Array) -> Any:
    probe = probes.Probe(kind)
    keys = jax.random.split(key)
    state = jax.lax.fori_loop(
      0,
      200,
      lambda _, state: agent.train_step(probe, {}, state)[0],
      agent.init(keys[0], keys[1], probe),
    )
    observation = jnp.stack(
      [
        jnp.stack([probes.observe(cue, step) for step in (0, 1)])
        for cue in (-1.0, 1.0)
      ]
    )
    rollout = dataclasses.replace(
      types.empty_rollout(probe.spec, (), length=1, batch_size=2),
      observation=observation,
    )
    outputs, _ = agent.network.unroll(state.learner.params, rollout)
    value = value_targets.values_from_logits(
      outputs['v'], BINS['max_abs_value']
    )
    return value, jax.nn.softmax(outputs['logits'])[..., 1]

  kinds = jnp.array(list(probes.SUSPECTS))
  keys = jax.random.split(jax.random.key(0), len(kinds))
  return Trained(*map(np.asarray, train(kinds, keys)))


@pytest.mark.parametrize('kind', probes.SUSPECTS, ids=lambda kind: kind.name)
def test_probes_are_solved(trained: Trained, kind: probes.Kind) -> None:
  value, policy = trained.value[kind], trained.policy[kind]
  suspect = f'suspect {probes.SUSPECTS[kind]}'
  close = lambda got, want: np.testing.assert_allclose(
    got, want, atol=0.05, err_msg=suspect
  )
  match kind:
    case probes.Kind.CONSTANT:
      close(value[:, 0], [1, 1])
    case probes.Kind.CUE:
      close(value[:, 0], [-1, 1])
    case probes.Kind.DELAY:
      close(value, [[0.5, 1], [0.5, 1]])
    case probes.Kind.ACTION:
      close(policy[:, 0], [1, 1])
    case probes.Kind.CUE_AND_ACTION:
      close(policy[:, 0], [0, 1])
