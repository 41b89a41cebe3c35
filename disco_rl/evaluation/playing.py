"""Whole episodes with a policy that does not learn: returns and pictures."""

from collections.abc import Callable
import dataclasses

import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.evaluation import statistics
from disco_rl.networks import agent_network
from disco_rl.runtime import reports

# (observations, whether each is the first of an episode [B]) -> actions [B].
Act = Callable[[types.PyTree, np.ndarray], np.ndarray]
# Of an episode: no fewer than Atari's limit of 108,000 frames, four a step.
MAX_STEPS = 30_000


@dataclasses.dataclass(frozen=True)
class Episodes:
  """Episodes that were played.

  Attributes:
    returns: [N] sums of rewards, not discounted.
    lengths: [N] numbers of steps.
    num_cut: episodes among them that had not ended after the most steps that
      were allowed, whose returns are those so far.
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
    """95% bootstrap interval of the mean return; None for one episode."""
    estimate = statistics.estimate(statistics.mean, self.returns[:, None])
    interval = estimate.ci95
    return None if interval is None else (interval[0], interval[1])

  def __str__(self) -> str:
    """The mean with its interval, in one line."""
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
  """Plays episodes in B environments side by side.

  How many each environment plays is fixed beforehand: the first N to end would
  be the short ones.

  Args:
    environment: B of them; reset here.
    act: the policy.
    num_episodes: N.
    watch: called after every observation with whether it is the last of an
      episode of the first environment.
    max_steps: The longest episode. One that has not ended by then is cut, and
      its environment plays no others: only an end makes it begin anew. A line
      on the standard error stream says so.

  Returns:
    The episodes, those of an environment one after the other.
  """
  number = environment.num_environments
  quotas = [num_episodes // number] * number
  for i in range(num_episodes % number):
    quotas[i] += 1
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
    is_step = timestep.mask | timestep.is_last  # Others merely reset.
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
      'limit, and the policy, perhaps as it is greedy, goes round in circles. '
      'max_steps allows more.'
    )
  counted = [x for own, n in zip(played, quotas) for x in own[:n]]
  returns, lengths = zip(*counted)
  return Episodes(np.array(returns), np.array(lengths), num_cut)


class Film:
  """Pictures of the first environment of a batch, while it is played.

  Attributes:
    frames: Pictures [H, W, 3] uint8.
    screens: the last text of each episode, where there is any; see
      `HostEnvironment.screen`.
    is_cut: whether there were more than `max_frames`.
    frames_per_second: The environment's.
  """

  def __init__(self, environment: base.HostEnvironment, max_frames: int):
    """Begins with no pictures.

    Args:
      environment: The environment that is played.
      max_frames: number of pictures to keep; later ones are not taken.
    """
    self._environment = environment
    self._max_frames = max_frames
    # How often the last picture of an episode is repeated, for half a second.
    self._pause = round(environment.frames_per_second / 2)
    self.frames_per_second = environment.frames_per_second
    self.frames: list[np.ndarray] = []
    self.screens: list[str] = []
    self.is_cut = False

  def take(self, is_last: bool) -> None:
    """Takes a picture.

    Args:
      is_last: whether it is the last one of an episode.

    Raises:
      base.RenderError: this environment cannot be rendered.
    """
    self.is_cut = len(self.frames) >= self._max_frames
    if not self.is_cut:
      picture = self._environment.render()
      self.frames += [picture] * (1 + is_last * self._pause)
    if is_last and (text := self._environment.screen()):
      self.screens.append(text)
