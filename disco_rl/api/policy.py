"""Agents that act and play, and policies that can be saved."""

import abc
import copy
import dataclasses
from typing import TYPE_CHECKING
from typing import NoReturn
from typing import Self

import jax
import numpy as np
from numpy import typing as npt

from disco_rl import types
from disco_rl.api import agent_files
from disco_rl.runtime import files
from disco_rl.runtime import video
from disco_rl.training import player as player_lib
from disco_rl.training import whole_episodes

if TYPE_CHECKING:
  import distrax

# Names of methods in other libraries -> those of `Acting` and `Trainer`.
_ELSEWHERE = {
  **dict.fromkeys(('learn', 'fit'), 'Trainer.train(steps=...)'),
  **dict.fromkeys(
    ('predict', 'get_action', 'select_action'), 'act(observation)'
  ),
  **dict.fromkeys(('eval', 'evaluate_policy', 'test'), 'evaluate(episodes)'),
}


class Acting(abc.ABC):
  """An agent that acts and plays: a `Policy`, or a `Trainer`.

  It has compiled programs, so it can be copied, but not pickled.
  """

  _player: player_lib.Player
  _memory: player_lib.Memory

  if not TYPE_CHECKING:

    def __getattr__(self, name: str) -> NoReturn:
      here = _ELSEWHERE.get(name)
      raise AttributeError(
        f'{type(self).__name__} has no {name!r}'
        + (f': use {here}.' if here else '.'),
        name=name,
        obj=self,
      )

  @abc.abstractmethod
  def _current_params(self) -> types.Params:
    """Returns theta, with a leading axis of one agent."""

  def act(
    self,
    observation: types.PyTree,
    *,
    greedy: bool = False,
    is_first: npt.ArrayLike = False,
  ) -> int | np.ndarray:
    """Chooses actions.

    Args:
      observation: An observation in the format of the environment, or a batch
        with a leading axis B; numbers are converted. Observations that already
        match `spec` are also accepted.
      greedy: Whether to take the most likely action, instead of sampling.
      is_first: bool or [B], whether an episode begins, which resets the core
        state of an agent with core_lstm.

    Returns:
      The action, or [B] actions, in the format of the environment.

    Raises:
      ValueError: The observation has a wrong structure or shape, is not finite,
        or has no legal action; or the size of the batch changes within episodes
        of an agent with core_lstm.
    """
    params = self._current_params()
    return self._player.act(params, self._memory, observation, greedy, is_first)

  def distribution(
    self, observation: types.PyTree, *, is_first: npt.ArrayLike = False
  ) -> 'distrax.Categorical':
    """Returns the distribution from which `act` samples, without acting.

      policy.distribution(observation).probs

    Args:
      observation: As for `act`.
      is_first: As for `act`.

    Returns:
      The `distrax.Categorical` over the numbers of actions, 0 to A - 1, with a
      batch axis if the observations have one. Illegal actions have the
      probability 0.

    Raises:
      ValueError: As for `act`.
    """
    params = self._current_params()
    return self._player.distribution(
      params, self._memory, observation, is_first
    )

  def evaluate(
    self,
    episodes: int = 100,
    *,
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = whole_episodes.MAX_STEPS,
  ) -> whole_episodes.Episodes:
    """Plays episodes in new environments, up to 16 in parallel.

    The agent does not learn from these episodes, and training is unaffected.

    Args:
      episodes: The number of episodes.
      greedy: Whether to take the most likely actions, instead of sampling.
      seed: The seed of environments and actions. Environments on the host begin
        with the same episodes as a training with this seed.
      max_steps: The maximal length of an episode. A longer one is cut, and
        counts with its return so far: without a time limit, a greedy policy may
        run in circles forever. `Episodes.num_cut` counts them, and a warning is
        printed.

    Returns:
      The returns and lengths, the mean return and its 95% interval.

    Raises:
      ValueError: An argument is not valid, or the environment was given as an
        object on the host, which cannot be made again.
    """
    played, _ = self._player.play(
      self._current_params(), episodes, greedy, seed, max_steps
    )
    return played

  def render(
    self,
    path: files.PathLike | None = None,
    episodes: int = 1,
    *,
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = whole_episodes.MAX_STEPS,
  ) -> np.ndarray:
    """Plays episodes in a new environment, and draws them.

    Args:
      path: A GIF or MP4 file to write, with small pictures scaled up; None: no
        file.
      episodes: The number of episodes; the first 1,000 pictures are taken.
      greedy: Whether to take the most likely actions, instead of sampling.
      seed: The seed of environments and actions.
      max_steps: The maximal length of an episode.

    Returns:
      The pictures [N, H, W, 3] uint8, padded with black below and to the right
      if their sizes differ. The last one of an episode is shown for half a
      second longer.

    Raises:
      ValueError: An argument is not valid, or the environment was given as an
        object on the host or cannot be rendered.
      ImportError: imageio-ffmpeg, which writes MP4, is not installed.
      OSError: The file cannot be written.
    """
    if path is not None:
      video.check_name(path)
    _, film = self.film(episodes, greedy=greedy, seed=seed, max_steps=max_steps)
    if path is not None:
      video.write(path, film.frames, film.frames_per_second)
    return video.stack(film.frames)

  def film(
    self,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    max_steps: int = whole_episodes.MAX_STEPS,
  ) -> tuple[whole_episodes.Episodes, whole_episodes.Film]:
    """Plays like `render`; returns the episodes and the original pictures."""
    played, film = self._player.play(
      self._current_params(), episodes, greedy, seed, max_steps, has_film=True
    )
    assert film is not None
    return played, film

  def __reduce__(self) -> NoReturn:
    """Raises TypeError: pickles cannot hold programs."""
    raise TypeError(
      f'A {type(self).__name__} cannot be pickled, and so cannot be sent to '
      'another process: save it with its method `save`, and load the file '
      'there with disco_rl.load_policy(path).'
    )

  @abc.abstractmethod
  def __copy__(self) -> Self:
    """Copies the agent; the copy acts and learns on its own."""

  def __deepcopy__(self, memo: dict[int, object]) -> Self:
    """Copies like `copy.copy`; programs are shared, as they do not change."""
    memo[id(self)] = new = copy.copy(self)
    return new


class Policy(Acting):
  """The policy of an agent; made by `Trainer.policy` and `load_policy`.

  Attributes:
    description: The description of the agent.
    spec: The shapes of observations and actions.
    params: The parameters theta, with a leading axis of one agent.
  """

  description: agent_files.Description
  spec: types.EnvironmentSpec
  params: types.Params

  def __init__(
    self,
    description: agent_files.Description,
    params: types.Params,
    player: player_lib.Player,
  ):
    """Use `Trainer.policy` or `load_policy` instead of calling this."""
    self.description = description
    self.params = params
    self.spec = player.spec
    self._player = player
    self._memory = player_lib.Memory(
      player_lib.action_keys(description.seed)[0]
    )

  def __copy__(self) -> Self:
    """Copies the policy, which continues with the same random actions."""
    new = object.__new__(type(self))
    new.__dict__.update(self.__dict__)
    # Arrays of JAX do not change; the mappings might.
    new.params = jax.tree.map(lambda x: x, self.params)
    new._memory = dataclasses.replace(self._memory)
    return new

  def _current_params(self) -> types.Params:
    return self.params

  def apply(
    self,
    params: types.Params,
    observation: types.PyTree,
    core_state: types.PyTree = None,
  ) -> tuple[types.Array, types.PyTree]:
    """Computes logits, as a pure function that can be compiled and exported.

      logits, _ = jax.jit(policy.apply)(policy.params, observations)

    Args:
      params: The parameters, `params` or others of the same shapes.
      observation: Observations [B, ...] in the format of `spec`.
      core_state: The state of the core of an agent with core_lstm, which the
        previous call returned; None where episodes begin.

    Returns:
      The logits of the actions [B, A], about -1e9 for illegal ones, and the
      next state of the core; it has no arrays without core_lstm.
    """
    return self._player.apply(params, observation, core_state)

  def save(self, path: files.PathLike) -> None:
    """Saves the parameters and the description, for `load_policy`.

    Args:
      path: The file, ending in '.npz'.

    Raises:
      ValueError: The path does not end in '.npz'.
      OSError: The file cannot be written.
    """
    agent_files.save_policy(path, self.description, self.params)
