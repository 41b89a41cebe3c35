"""Plays whole episodes with a fixed policy: returns and pictures."""

from collections.abc import Callable
import dataclasses

import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.maths import statistics
from disco_rl.networks import agent_network
from disco_rl.runtime import reports

# (observations, whether each is the first of an episode [B]) -> actions [B].
Act = Callable[[types.PyTree, np.ndarray], np.ndarray]
# The maximal steps of an episode; above Atari's limit, 108,000 frames / 4.
MAX_STEPS = 30_000


@dataclasses.dataclass(frozen=True)
class Episodes:
  """The results of episodes that were played.

  Attributes:
    returns: The undiscounted sums of rewards, [N].
    lengths: The numbers of steps, [N].
    num_cut: The number of episodes that were cut at the maximal length, whose
      returns are incomplete.
  """

  returns: np.ndarray
  lengths: np.ndarray
  num_cut: int = 0

  @property
  def mean(self) -> float:
    """The mean return."""
    return float(np.mean(self.returns))

  @property
  def ci95(self) -> tuple[float, float] | None:
    """The 95% bootstrap interval of the mean return; None for one episode."""
    estimate = statistics.estimate(statistics.mean, self.returns[:, None])
    interval = estimate.ci95
    return None if interval is None else (interval[0], interval[1])

  def __str__(self) -> str:
    """Formats the mean with its interval in one line."""
    interval = self.ci95
    within = (
      f' (95%: {interval[0]:.4g} to {interval[1]:.4g})' if interval else ''
    )
    return (
      f'mean return {self.mean:.4g}{within}, mean length '
      f'{np.mean(self.lengths):.4g}, {len(self.returns)} episodes'
      + (f', {self.num_cut} of them cut short' if self.num_cut else '')
    )


def play(
  environment: base.HostEnvironment,
  act: Act,
  num_episodes: int,
  watch: Callable[[bool], None] = lambda _: None,
  max_steps: int = MAX_STEPS,
) -> Episodes:
  """Plays episodes in B environments in parallel.

  The number of episodes of each environment is fixed in advance: the first N
  that end would be biased towards short ones.

  Args:
    environment: The B environments, which are reset here.
    act: The policy.
    num_episodes: N.
    watch: Called after every observation, with True after the last one of an
      episode of the first environment.
    max_steps: The maximal length of an episode. A longer one is cut, and its
      environment plays no more episodes, because only the end of an episode
      resets it. A line on the standard error stream reports this.

  Returns:
    The episodes, grouped by environment.
  """
  number = environment.num_environments
  quotas = [len(range(i, num_episodes, number)) for i in range(number)]
  played: list[list[tuple[float, int]]] = [[] for _ in quotas]
  total, length, num_cut = np.zeros(number), np.zeros(number, int), 0
  observation, is_first = environment.reset(), np.ones(number, bool)
  watch(False)
  while any(len(own) < quota for own, quota in zip(played, quotas)):
    timestep = environment.step(act(observation, is_first))
    watch(bool(timestep.is_last[0]))
    observation = timestep.observation
    is_first = np.asarray(
      agent_network.has_ended(timestep.is_terminal, timestep.mask)
    )
    is_step = timestep.mask | timestep.is_last  # Others only reset.
    total += np.where(is_step, timestep.reward, 0.0)
    length += is_step
    for i in np.flatnonzero(timestep.is_last).tolist():
      played[i].append((float(total[i]), int(length[i])))
      total[i], length[i] = 0.0, 0
    for i in np.flatnonzero(length >= max_steps).tolist():
      if len(played[i]) < quotas[i]:
        played[i].append((float(total[i]), int(length[i])))
        quotas[i] = len(played[i])
        num_cut += 1
  if num_cut:
    reports.warn(
      f'{num_cut} episodes had not ended after {max_steps:,} steps and were '
      'cut: their returns so far count. Likely the environment has no time '
      'limit, and the policy goes in circles, perhaps because it is greedy. '
      'max_steps allows more.'
    )
  counted = [x for own, n in zip(played, quotas) for x in own[:n]]
  returns, lengths = zip(*counted)
  return Episodes(np.array(returns), np.array(lengths), num_cut)


class Film:
  """A film of the first environment of a batch, taken while it is played.

  Attributes:
    frames: The pictures, [H, W, 3] uint8.
    screens: The last text of each episode that has one, by
      `HostEnvironment.screen`.
    is_cut: Whether there were more than `max_frames`.
    frames_per_second: The speed of the environment.
  """

  def __init__(self, environment: base.HostEnvironment, max_frames: int):
    """Makes an empty film; pictures after `max_frames` are not taken."""
    self._environment = environment
    self._max_frames = max_frames
    # The last picture of an episode is shown for half a second.
    self._pause = round(environment.frames_per_second / 2)
    self.frames_per_second = environment.frames_per_second
    self.frames: list[np.ndarray] = []
    self.screens: list[str] = []
    self.is_cut = False

  def take(self, is_last: bool) -> None:
    """Takes a picture, which may be the last one of an episode.

    Raises:
      base.RenderError: The environment cannot be rendered.
    """
    self.is_cut = len(self.frames) >= self._max_frames
    if not self.is_cut:
      picture = self._environment.render()
      self.frames += [picture] * (1 + is_last * self._pause)
    if is_last and (text := self._environment.screen()):
      self.screens.append(text)
