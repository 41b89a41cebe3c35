"""What agents on the host are in the middle of, and where they begin anew."""

import functools
import operator
import pathlib
from typing import Any

import discovering
import jax
import numpy as np
import pytest

from disco_rl.agent import agent as agent_lib
from disco_rl.agent import cohort as cohort_lib
from disco_rl.agent import host_collector
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import actor_critic

LENGTH, EACH = 3, 2
# Numbers of agents and, by rollouts, which of them act together.
OWN = range(4, 7)
ROLLOUTS = {4: 1, 6: 2, 5: 3}


@functools.cache
def make_agent() -> agent_lib.Agent:
  config = agent_lib.AgentConfig(
    network=agent_network.AgentNetworkConfig(
      torsos.TorsoConfig(hidden_sizes=(4,))
    ),
    unroll_length=LENGTH,
    batch_size=EACH,
    num_environments=EACH,
    on_policy_share=1.0,
    replay_capacity=4,
  )
  rule = actor_critic.ActorCritic(num_bins=3)
  return agent_lib.make(config, discovering.counting_spec(), rule)


@pytest.fixture(autouse=True)
def shared_programs(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(host_collector, 'Programs', PROGRAMS)


PROGRAMS = functools.cache(host_collector.Programs)


class Closable(discovering.Counting):
  is_closed = False

  def close(self) -> None:
    self.is_closed = True


def make() -> cohort_lib.Cohort:
  """Each agent is a batch, not in the order of numbers."""
  return cohort_lib.Cohort(
    make_agent(),
    lambda: [Closable(number) for number in OWN],
    [np.array([number]) for number in ROLLOUTS],
    OWN,
  )


@functools.cache
def initial() -> host_collector.HostState:
  init = functools.partial(host_collector.init, make_agent())
  return jax.jit(jax.vmap(init))(jax.random.split(jax.random.key(0), len(OWN)))


def act(cohort: cohort_lib.Cohort, records: Any, once: bool = False) -> Any:
  """Makes the rollouts of each agent, or one; returns the records."""
  statistics = []
  for micro in cohort.micro_batches:
    acting = jax.tree.map(operator.itemgetter(micro.own), records.acting)
    (number,) = micro.agents.tolist()
    for _ in range(1 if once else ROLLOUTS[number]):
      acting, _ = micro.collector.act_and_sample(acting)
    statistics.append(acting.episodes.running)
  order = np.argsort(np.concatenate([x.own for x in cohort.micro_batches]))
  return np.concatenate(statistics)[order]


def counts(cohort: cohort_lib.Cohort) -> list[list[int]]:
  """The number, resets and steps of each agent's environments."""
  states: Any = [x.save_state() for x in cohort.environments]
  return [x['counts'].tolist() for x in states]


def check_begun_again(cohort: cohort_lib.Cohort, records: Any) -> None:
  """Before and after the next rollout."""
  assert cohort.save_episodes() is None
  running = act(cohort, records, once=True)
  assert counts(cohort) == [[number, 2, LENGTH] for number in OWN]
  # Of three rewards each: the number, or one more.
  for number, returns in zip(OWN, running):
    assert (returns >= LENGTH * number).all()
    assert (returns <= LENGTH * (number + 1)).all()
  assert cohort.save_episodes() is not None


def test_counters_are_in_the_order_of_agents() -> None:
  cohort = make()
  act(cohort, cohort.renew(initial()))
  assert counts(cohort) == [[4, 1, 3], [5, 1, 9], [6, 1, 6]]
  assert cohort.counters['added'].tolist() == [2, 6, 4]
  again = make()
  again.replace_contents(cohort.contents(), cohort.counters)
  np.testing.assert_array_equal(again.contents(), cohort.contents())
  records = again.resume(initial())
  number = records.replay['added'] - records.replay['start']
  assert number.tolist() == [2, 6, 4]


@pytest.mark.parametrize('is_opened', [False, True])
def test_new_agents_begin_new_episodes(
  is_opened: bool, tmp_path: pathlib.Path
) -> None:
  """Also if their replay is in another folder, which is empty."""
  cohort = make()
  records = cohort.renew(initial())
  assert records.replay['added'].tolist() == [0, 0, 0]
  # Episodes that have just begun do not begin again.
  assert counts(cohort) == [[number, 1, 0] for number in OWN]
  assert cohort.save_episodes() is not None
  act(cohort, records)
  if is_opened:
    cohort.open_replays(tmp_path)
  records = cohort.renew(initial())
  expected = [0, 0, 0] if is_opened else [2, 6, 4]
  for name in ('start', 'added'):
    assert records.replay[name].tolist() == expected
  check_begun_again(cohort, records)


def test_agents_without_episodes_begin_new_ones() -> None:
  cohort = make()
  records = cohort.renew(initial())
  act(cohort, records)
  resumed = cohort.resume(records)
  assert resumed.replay['added'].tolist() == [2, 6, 4]
  check_begun_again(cohort, resumed)


def test_agents_continue_their_episodes() -> None:
  cohort, other = make(), make()
  act(cohort, cohort.renew(initial()))
  saved = cohort.save_episodes()
  other.end_episodes()
  resumed = other.resume(initial(), saved)
  act(other, resumed, once=True)
  assert counts(other) == [[4, 1, 6], [5, 1, 12], [6, 1, 9]]
  other.renew(initial())
  other.resume(initial(), saved)  # They need not begin again after all.
  act(other, resumed, once=True)
  assert counts(other) == [[4, 1, 6], [5, 1, 12], [6, 1, 9]]


def test_a_rollout_that_failed_is_forgotten() -> None:
  cohort = make()
  records = cohort.renew(initial())
  environment: Any = cohort.environments[1]
  step, environment.step = environment.step, None
  with pytest.raises(TypeError):
    act(cohort, records)
  cohort.end_episodes()
  environment.step = step
  check = cohort.save_episodes()
  assert check is None
  act(cohort, records, once=True)
  assert cohort.save_episodes() is not None
  assert counts(cohort)[1] == [5, 2, LENGTH]


def test_other_environments_are_closed() -> None:
  cohort = make()
  act(cohort, cohort.renew(initial()))
  former, others = cohort.environments, [Closable(10 * i) for i in range(3)]
  cohort.replace_environments(lambda: others)
  assert all(x.is_closed for x in former)  # type: ignore[attr-defined]
  assert not any(x.is_closed for x in others)
  act(cohort, cohort.resume(initial()), once=True)
  assert counts(cohort) == [[10 * i, 1, LENGTH] for i in range(3)]


def test_records_of_agents_on_the_device_have_everything(
  tmp_path: pathlib.Path,
) -> None:
  cohort, records = cohort_lib.Cohort(make_agent()), initial()
  cohort.begin_episodes()
  cohort.open_replays(tmp_path)
  cohort.save_replays(keep=1)
  cohort.restore_replays({})
  cohort.replace_environments(list)
  cohort.replace_contents(cohort.contents(), {})
  assert cohort.contents() == {}
  assert cohort.save_episodes() is None
  assert cohort.renew(records) is records
  assert cohort.resume(records) is records
  assert not any(tmp_path.iterdir())
