"""A trained agent that acts, plays and is saved, and learns no further."""

from typing import Any

import jax
import numpy as np
from numpy import typing as npt

from disco_rl import types
from disco_rl.api import agent_files
from disco_rl.api import player as player_lib
from disco_rl.evaluation import playing
from disco_rl.runtime import files
from disco_rl.runtime import video


class Policy(agent_files.Unpicklable):
  """The policy of an agent; made by `Trainer.policy` and `load_policy`.

  Attributes:
    description: how the agent was made.
    spec: Shapes of observations and actions.
    params: theta, with a leading axis of one agent.
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
    self._memory = player_lib.Memory(jax.random.key(description.seed))

  def act(
    self,
    observation: types.PyTree,
    *,
    greedy: bool = False,
    is_first: npt.ArrayLike = False,
  ) -> Any:
    """Chooses actions, as `Trainer.act`."""
    return self._player.act(
      self.params, self._memory, observation, greedy, is_first
    )

  def evaluate(
    self,
    episodes: int = 100,
    *,
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = playing.MAX_STEPS,
  ) -> playing.Episodes:
    """Plays episodes in new environments, up to 16 side by side.

    Args:
      episodes: their number.
      greedy: takes the most likely actions, instead of samples of the policy.
      seed: The seed of environments and actions.
      max_steps: The longest episode. One that has not ended by then is cut, and
        counts with its return so far: a greedy policy may go round in circles
        where there is no time limit. `Episodes.num_cut` counts them, and a
        warning is printed.

    Returns:
      Returns and lengths, the mean return and its 95% interval.

    Raises:
      ValueError: an argument is not valid, or the environment was given as an
        object, of which there can be no others.
    """
    played, _ = self._player.play(
      self.params, episodes, greedy, seed, max_steps
    )
    return played

  def render(
    self,
    path: files.PathLike | None = None,
    episodes: int = 1,
    *,
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = playing.MAX_STEPS,
  ) -> np.ndarray:
    """Plays episodes in a new environment, and draws them.

    Args:
      path: A GIF or MP4 file to write, where small pictures are scaled up;
        None: none.
      episodes: their number; the first 1,000 pictures are taken.
      greedy: as in `evaluate`.
      seed: as in `evaluate`.
      max_steps: as in `evaluate`.

    Returns:
      Pictures [N, H, W, 3] uint8. The last of an episode is there for half a
      second more.

    Raises:
      ValueError: an argument is not valid, the environment was given as an
        object, or cannot be drawn.
      ImportError: imageio-ffmpeg, which writes MP4, is not installed.
      OSError: the file cannot be written.
    """
    if path is not None:
      video.check_name(path)
    _, film = self.film(episodes, greedy=greedy, seed=seed, max_steps=max_steps)
    if path is not None:
      video.write(path, film.frames, film.frames_per_second)
    return np.stack(film.frames)

  def film(
    self,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    max_steps: int = playing.MAX_STEPS,
  ) -> tuple[playing.Episodes, playing.Film]:
    """As `render`; returns the episodes and their pictures as they were."""
    played, film = self._player.play(
      self.params, episodes, greedy, seed, max_steps, has_film=True
    )
    assert film is not None
    return played, film

  def save(self, path: files.PathLike) -> None:
    """Saves the parameters and the description, which `load_policy` reads.

    Args:
      path: The file, ending in '.npz'.

    Raises:
      ValueError: the path does not end in '.npz'.
    """
    agent_files.save_policy(path, self.description, self.params)
