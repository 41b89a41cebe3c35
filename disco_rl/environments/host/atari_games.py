"""Atari games that can be saved, although their emulators cannot."""

from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.environments.host import adapters
from disco_rl.environments.host import image_vector

# Steps of a game after which the end of an episode reseeds it, which takes as
# long as 200 steps. To restore it takes at most these steps and those of an
# episode.
SEEDED_STEPS = 20_000


class AtariGames(image_vector.ImageVectorEnvironment):
  """A vector environment of ALE, whose emulators cannot be saved.

  They are deterministic given their seeds, including sticky actions. So the
  state of a game is its seed and all actions since then, which are repeated
  when it is restored; from time to time the end of an episode reseeds it.
  """

  def __init__(self, *args: Any, longest: int, **kwargs: Any):
    """Wraps a vector environment.

    Args:
      *args: The arguments of `ImageVectorEnvironment`.
      longest: The maximal number of steps of an episode.
      **kwargs: The keyword arguments of `ImageVectorEnvironment`.
    """
    super().__init__(*args, **kwargs)
    number = self.num_environments
    # A reset, and steps that reset, take one more each.
    shape = number, SEEDED_STEPS + longest + 2
    self._seedings = np.full(number, -1, np.int32)
    self._taken = np.zeros(number, np.int32)
    self._past = np.zeros(shape, np.int8)

  def save_state(self) -> types.PyTree:
    """Implements `HostEnvironment.save_state`."""
    return {
      'seedings': self._seedings.copy(),
      'taken': self._taken.copy(),
      'past': self._past.copy(),
      'is_resetting': self._is_resetting.copy(),
    }

  def restore_state(self, state: types.PyTree) -> None:
    """Takes the past actions again; see `HostEnvironment.restore_state`."""
    state = {name: np.array(x) for name, x in state.items()}
    seedings, taken, past = (state[x] for x in ('seedings', 'taken', 'past'))
    # All games end at the same time: games with fewer actions begin later.
    first = taken.max() - taken
    self._seed_where(np.ones(self.num_environments, bool), seedings)
    games = np.arange(self.num_environments)
    for t in range(taken.max()):
      if (begins := (first == t) & (t > 0)).any():
        self._seed_where(begins, seedings)
      action = np.where(t < first, 0, past[games, np.maximum(t - first, 0)])
      super()._step(action.astype(np.int32))
    if (begins := (first == taken.max()) & (first > 0)).any():
      self._seed_where(begins, seedings)
    self._seedings, self._taken, self._past = seedings, taken, past
    self._is_resetting = state['is_resetting']

  def _reset(self) -> np.ndarray:
    self._seedings += 1
    self._taken[:] = 0
    return self._seed_where(
      np.ones(self.num_environments, bool), self._seedings
    )

  def _step(self, action: np.ndarray) -> tuple[Any, ...]:
    frame, *outcome = super()._step(action)
    is_due = self._is_resetting & (self._taken >= SEEDED_STEPS)
    if is_due.any():
      self._seedings[is_due] += 1
      frame = self._seed_where(is_due, self._seedings)
    games = np.flatnonzero(~is_due)
    self._past[games, self._taken[games]] = action[games]
    self._taken = np.where(is_due, 0, self._taken + 1)
    return frame, *outcome

  def _seed_where(self, chosen: np.ndarray, seedings: np.ndarray) -> np.ndarray:
    """Begins episodes of some games [B], for the n-th time with a seed."""
    first = adapters.sub_seeds(self._seed, self.num_environments)
    seeds = [
      adapters.resumed_seed(seed, number) if number else seed
      for seed, number in zip(first[chosen].tolist(), seedings[chosen].tolist())
    ]
    options = None if chosen.all() else {'reset_mask': chosen}
    frame, _ = self._env.reset(
      seed=np.asarray(seeds, np.int32), options=options
    )
    return self._reshaped(frame)
