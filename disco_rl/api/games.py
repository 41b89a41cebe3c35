"""Episodes of an agent in environments of their own."""

import contextlib
from typing import Any

import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.api import player
from disco_rl.environments import base
from disco_rl.environments import families
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.environments.jax_native import on_host
from disco_rl.evaluation import playing
from disco_rl.networks import agent_network

# Environments that play side by side.
_MAX_ENVIRONMENTS = 16
# Of 600 x 400 pixels, as CartPole draws, they take 720 MB.
MAX_FRAMES = 1_000


class Games:
  """Plays with a network of one kind; programs are compiled once."""

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    environment: families.Environment,
    given: Any,
    preprocessing: registry.Preprocessing,
  ):
    """Makes and compiles nothing yet.

    Args:
      network: The network of the agent.
      environment: one as others will be; on the host it may be closed.
      given: what it was made from; see `Trainer`.
      preprocessing: likewise.
    """
    self.spec = environment.spec
    self._network = network
    self._environment = environment
    self._given = given
    self._preprocessing = preprocessing
    self._player = player.Player(network, self.spec, 0)
    # JAX environments by batch size: each size is compiled separately.
    self._kept: dict[int, on_host.OnHost] = {}

  def make_player(self, seed: int) -> player.Player:
    """A player in the environment as it was before it was wrapped."""
    return player.Player(
      self._network,
      self.spec,
      seed,
      self._environment.encode,
      self._environment.decode,
    )

  def evaluate(
    self,
    params: types.Params,
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int,
  ) -> playing.Episodes:
    """See `Policy.evaluate`."""
    episodes, seed, max_steps = _valid(episodes, seed, max_steps)
    number = min(episodes, _MAX_ENVIRONMENTS)
    with contextlib.closing(
      self._environments(number, seed, can_render=False)
    ) as environment:
      act = self._policy(params, greedy, seed)
      return playing.play(environment, act, episodes, max_steps=max_steps)

  def film(
    self,
    params: types.Params,
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int,
  ) -> tuple[playing.Episodes, playing.Film]:
    """As `evaluate`, in one environment, of which pictures are taken."""
    episodes, seed, max_steps = _valid(episodes, seed, max_steps)
    with contextlib.closing(
      self._environments(1, seed, can_render=True)
    ) as environment:
      film = playing.Film(environment, MAX_FRAMES)
      act = self._policy(params, greedy, seed)
      played = playing.play(environment, act, episodes, film.take, max_steps)
      return played, film

  def _policy(
    self, params: types.Params, greedy: bool, seed: int
  ) -> playing.Act:
    self._player.restart(seed)

    def act(observation: types.PyTree, is_first: np.ndarray) -> np.ndarray:
      return self._player.act(params, observation, greedy, is_first)

    return act

  def _environments(
    self, number: int, seed: int, can_render: bool
  ) -> base.HostEnvironment:
    """New environments, or kept ones with another seed."""
    if isinstance(self._environment, base.JaxEnvironment):
      if number not in self._kept:
        self._kept[number] = on_host.OnHost(self._environment, number, seed)
      self._kept[number].seed(seed)
      return self._kept[number]
    source = wrapping.recognise(self._given, self._preprocessing, can_render)
    if source.num_environments is not None:
      raise ValueError(
        f'Episodes are played in new environments, but {self._given!r} is a '
        'single object: pass a function that makes it, or a name.'
      )
    environment = source.build(number, seed)
    assert isinstance(environment, base.HostEnvironment)
    return environment


def _valid(episodes: int, seed: int, max_steps: int) -> tuple[int, int, int]:
  """The arguments, converted; raises ValueError for one that is not valid."""
  return (
    config_lib.valid('episodes', episodes, config_lib.Count),
    config_lib.valid('seed', seed, config_lib.CountOrZero),
    config_lib.valid('max_steps', max_steps, config_lib.Count),
  )
