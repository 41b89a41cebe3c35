"""Playing whole episodes, and the pictures of them."""

import dataclasses
from typing import Any

import conformance
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import on_host
from disco_rl.training import player
from disco_rl.training import whole_episodes

LENGTHS = (10, 1)


def test_played_actions_have_keys_of_their_own() -> None:
  """Training begins with the keys of its seeds, and splits them."""
  numbers = [player.action_keys(seed) for seed in range(3)]
  in_training = [
    key
    for seed in range(6)
    for own in [jax.random.key(seed)]
    for key in (own, *jax.random.split(own))
  ]
  every = [key for both in numbers for key in both] + in_training
  assert len({tuple(jax.random.key_data(x).tolist()) for x in every}) == 6 + 18


class Clock(base.HostEnvironment):
  """Two environments, whose episodes last 10 steps and 1 step.

  Each step pays 1; the dummy step that begins an episode pays 100. The
  observation counts the steps of the episode.
  """

  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((), np.int32), num_actions=2
  )
  num_environments = 2
  frames_per_second = 4.0

  def reset(self) -> Any:
    self.time = np.zeros(2, int)
    return self.time.copy()

  def step(self, action: Any) -> types.TimeStep:
    del action
    is_dummy = self.time == LENGTHS
    self.time = np.where(is_dummy, 0, self.time + 1)
    is_last: Any = self.time == LENGTHS
    fields: Any = {
      'reward': np.where(is_dummy, 100.0, 1.0),
      'is_terminal': is_last | is_dummy,
      'is_last': is_last,
      'mask': ~is_dummy,
    }
    return types.TimeStep(observation=self.time.copy(), **fields)

  def render(self) -> np.ndarray:
    return np.full((1, 1, 3), self.time[0], np.uint8)

  def screen(self) -> str:
    return f'time {self.time[0]}'

  def close(self) -> None:
    pass


def test_short_episodes_are_not_preferred() -> None:
  played = whole_episodes.play(Clock(), lambda *_: np.zeros(2, int), 5)
  # Of the first five episodes to end, four would be short.
  np.testing.assert_array_equal(played.lengths, [10, 10, 10, 1, 1])
  np.testing.assert_array_equal(played.returns, [10, 10, 10, 1, 1])


def test_episodes_without_an_end_are_cut_and_said_to_be(
  capsys: pytest.CaptureFixture[str],
) -> None:
  act = lambda *_: np.zeros(2, int)
  played = whole_episodes.play(Clock(), act, 4, max_steps=9)
  # The environment whose episode is cut cannot begin another.
  np.testing.assert_array_equal(played.lengths, [9, 1, 1])
  np.testing.assert_array_equal(played.returns, [9, 1, 1])
  assert played.num_cut == 1
  assert f'{played}'.endswith(', 3 episodes, 1 of them cut short')
  assert '1 episodes had not ended after 9 steps' in capsys.readouterr().err
  played = whole_episodes.play(Clock(), act, 4, max_steps=10)
  assert played.num_cut == 0
  np.testing.assert_array_equal(played.lengths, [10, 10, 1, 1])
  assert not capsys.readouterr().err


def test_policies_are_told_where_episodes_begin() -> None:
  calls = []

  def act(observation: Any, is_first: np.ndarray) -> np.ndarray:
    calls.append((observation, is_first))
    return np.zeros(2, int)

  whole_episodes.play(Clock(), act, 4)
  for observation, is_first in calls:
    assert is_first[observation == 0].all()
    assert not is_first[(observation > 0) & (observation < LENGTHS)].any()


def test_films_show_every_step_and_pause_at_the_end_of_episodes() -> None:
  environment = Clock()
  film = whole_episodes.Film(environment, max_frames=20)
  whole_episodes.play(environment, lambda *_: np.zeros(2, int), 2, film.take)
  shown = [int(frame[0, 0, 0]) for frame in film.frames]
  # Half a second more is two pictures.
  assert shown == [*range(11), 10, 10]
  assert film.screens == ['time 10']
  assert not film.is_cut

  film = whole_episodes.Film(environment, max_frames=5)
  whole_episodes.play(environment, lambda *_: np.zeros(2, int), 2, film.take)
  assert len(film.frames) == 5
  assert film.is_cut


def test_intervals() -> None:
  rng = np.random.default_rng(0)
  returns = rng.normal(3.0, 2.0, 400)
  played = whole_episodes.Episodes(returns, np.ones(400, int))
  low, high = played.ci95 or (0.0, 0.0)
  # By the central limit theorem.
  radius = 1.96 * returns.std() / 20
  np.testing.assert_allclose(
    [low, high], [returns.mean() - radius, returns.mean() + radius], atol=0.03
  )
  assert f'{returns.mean():.4g} (95%: {low:.4g} to {high:.4g})' in str(played)
  assert whole_episodes.Episodes(returns[:1], np.ones(1, int)).ci95 is None


def test_jax_native_environments_on_the_host_keep_to_the_protocol() -> None:
  make = lambda seed: on_host.OnHost(catch.Catch(4, 3), 6, seed)
  conformance.check(make, num_steps=12, num_environments=6)


def test_rewards_of_jax_native_environments_on_the_host_are_checked() -> None:
  class Faulty(catch.Catch):
    def step(self, *arguments: Any) -> Any:
      state, timestep = super().step(*arguments)
      return state, dataclasses.replace(timestep, reward=jnp.float32(jnp.nan))

  environment = on_host.OnHost(Faulty(3, 2), 2, seed=1)
  environment.reset()
  with pytest.raises(adapters.HostEnvironmentError, match='seed 1 .*nan'):
    environment.step(np.zeros(2, np.int32))


@pytest.mark.parametrize('sign', [1, -1])
def test_returns_of_known_policies(sign: int) -> None:
  def act(board: np.ndarray, _: Any) -> np.ndarray:
    ball = board[:, :-1].sum(1).argmax(-1)
    paddle = board[:, -1].argmax(-1)
    # Towards the ball, or away from it; on a board of two columns.
    towards = np.sign(ball - paddle)
    return np.where(
      towards == 0, 1 - (sign < 0) * np.where(ball, 1, -1), 1 + sign * towards
    )

  environment = on_host.OnHost(catch.Catch(3, 2), 4, seed=1)
  played = whole_episodes.play(environment, act, 8)
  np.testing.assert_array_equal(played.lengths, 2)
  np.testing.assert_array_equal(played.returns, sign)
