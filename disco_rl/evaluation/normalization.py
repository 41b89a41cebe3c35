"""Normalizes returns: 0 is a low reference score, 1 a high one.

Normalized scores are averaged over the environments of a benchmark. Returns of
an environment without references are neither normalized nor averaged. To add
references, add an entry to `_SCALES`.
"""

from collections.abc import Mapping
import dataclasses

import numpy as np
from numpy import typing as npt

from disco_rl.environments.host import atari
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.evaluation import exact_returns
from disco_rl.evaluation import reference_scores


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """Environments whose scores may be averaged.

  Attributes:
    name: A short name, for folders and keys.
    title: The name in headings.
    meaning: What scores of 0 and 1 mean, with the source.
    is_low_random: Whether 0 is the exact mean return of random play.
    is_high_best: Whether 1 is the best possible return, or the one of a
      reference policy.
  """

  name: str
  title: str
  meaning: str
  is_low_random: bool = False
  is_high_best: bool = False


@dataclasses.dataclass(frozen=True)
class Scale:
  """The scale on which an environment's returns are normalized.

  Attributes:
    benchmark: The benchmark that the environment belongs to.
    low: The return that is normalized to 0.
    high: The return that is normalized to 1.
  """

  benchmark: Benchmark
  low: float
  high: float

  def normalize(self, returns: npt.ArrayLike) -> np.ndarray:
    """Normalizes returns of any shape; scores outside [0, 1] remain."""
    return (np.asarray(returns, float) - self.low) / (self.high - self.low)


_ATARI = Benchmark(
  'atari',
  'Atari, human-normalized',
  '0 is random play and 1 a professional human tester (Wang et al., 2016).',
)
_DMLAB = Benchmark(
  'dmlab',
  'DMLab-30, human-normalized',
  '0 is random play and 1 human play (Espeholt et al., 2018; Oh et al., 2025, '
  'Extended Data Table 3).',
)
_PROCGEN = 'the bounds of Cobbe et al. (2020, appendix C): 0 is an agent that '
_PROCGEN += 'sees nothing, 1 the best possible score or the best one reached.'
_PROCGEN_HARD = Benchmark(
  'procgen', 'ProcGen, hard mode, normalized', f'By {_PROCGEN}'
)
_PROCGEN_EASY = Benchmark(
  'procgen_easy', 'ProcGen, easy mode, normalized', f'By {_PROCGEN}'
)
_MINATAR = Benchmark(
  'minatar',
  'MinAtar, normalized',
  '0 is random play as measured here, 1 the checkpoints of PPO whose returns '
  'the authors of gymnax publish (Lange, 2022). They publish none for '
  'Seaquest.',
)
_GRIDWORLD = Benchmark(
  'gridworld',
  'Grid worlds, normalized',
  '0 is random play, 1 the reference policy of '
  'disco_rl/environments/jax_native/gridworld_tasks.py, which is optimal where '
  'objects have fixed places and can be surpassed elsewhere.',
  is_low_random=True,
  is_high_best=True,
)
_RANDOM_GRID = Benchmark(
  'random_grid',
  'Random grid worlds, normalized',
  '0 is random play, 1 the optimal policy that observes the time left, both '
  'computed by disco_rl/evaluation/exact_returns.py.',
  is_low_random=True,
  is_high_best=True,
)
_LPG = dataclasses.replace(
  _RANDOM_GRID, name='lpg', title="LPG's grid worlds, normalized"
)
_RANDOM_CHAIN = Benchmark(
  'random_chain',
  'Random chains, normalized',
  '0 is random play (return 0), 1 the better action (return 1), averaged over '
  'the noise.',
  is_low_random=True,
  is_high_best=True,
)
_CATCH = Benchmark(
  'catch',
  'Catch, normalized',
  '0 is missing every ball (return -1), 1 catching every ball (return 1).',
  is_high_best=True,
)
_CRAFTER = Benchmark(
  'crafter',
  'Crafter, normalized reward',
  '0 is random play and 1 human experts (Hafner, 2022). This is the reward; '
  'the score of success rates is below, under achievements.',
)
_SOKOBAN = Benchmark(
  'sokoban',
  'Sokoban, levels solved',
  'The fraction of the last 100 episodes in which the level was solved. The '
  'paper shows mean returns (Fig. 2f), in levels like those of I2A; these are '
  'generated, or from a file.',
)
# Each of at most 120 steps has a reward of -0.1, a box on its target 1, and the
# solution 10. So a solved episode returns at least -1, and an unsolved one with
# n boxes at most n - 13. With four boxes, limits of 81 to 159 steps also work.
_SOKOBAN_SOLVED = -5.0


def alone(environment: str) -> Benchmark:
  """Makes a benchmark of one environment without references."""
  return Benchmark(
    environment,
    f'{environment}, raw returns',
    'There are no reference scores for this environment, so its returns are '
    'neither normalized nor averaged with those of others.',
  )


def find_scale(environment: str) -> Scale | None:
  """Finds the scale of an environment; None if it has no reference scores."""
  family = environment.partition('/')[0]
  if family in _COMPUTED:
    if not environment.rpartition('/')[2].isdecimal():
      return None
    bounds = exact_returns.of_environment(environment)
    return Scale(_COMPUTED[family], *bounds)
  # Test levels of DMLab have the scores of the training levels.
  name = environment.removesuffix('_test')
  return _SCALES.get(name) or _SCALES.get(family)


def families() -> list[str]:
  """Returns the families of environments that have scales."""
  named = (*_COMPUTED, *_SCALES)
  return [*dict.fromkeys(name.partition('/')[0] for name in named)]


def success_threshold(environment: str) -> float | None:
  """Returns the return above which an episode is a success; None if undefined.

  If it is defined, the environment is scored by its fraction of successes.
  """
  is_sokoban = environment.partition('/')[0] == 'sokoban'
  return _SOKOBAN_SOLVED if is_sokoban else None


def column(environment: str) -> str:
  """Returns the column of metrics.csv that scores an environment."""
  return 'return' if success_threshold(environment) is None else 'success'


def crafter_score(success_rates: npt.ArrayLike) -> np.ndarray:
  """Computes Crafter's score, exp(mean_i(log(1 + s_i))) - 1, in percent.

  In this geometric mean over achievements i, rare ones count more than common
  ones. 1 is added so that an achievement without success does not make it 0.

  Args:
    success_rates: The fraction of episodes that unlocked each achievement,
      [..., achievements], in [0, 1].

  Returns:
    [...], from 0 to 100.

  Raises:
    ValueError: A rate is outside [0, 1].
  """
  rates = np.asarray(success_rates, float)
  if not np.all((rates >= 0) & (rates <= 1)):
    raise ValueError(
      'Success rates must be fractions between 0 and 1; got values '
      f'from {rates.min():g} to {rates.max():g}. Divide percentages by 100.'
    )
  return np.expm1(np.mean(np.log1p(100 * rates), axis=-1))


def _scales(
  benchmark: Benchmark,
  bounds: Mapping[str, tuple[float, float]],
  prefix: str = '',
) -> dict[str, Scale]:
  """Makes scales of prefix + name from the bounds by name."""
  return {prefix + name: Scale(benchmark, *x) for name, x in bounds.items()}


_HARD, _EASY = (
  {game: bounds[mode] for game, bounds in procgen.GAMES.items()}
  for mode in (0, 1)
)
# Environment, or a family with a common scale -> scale.
_SCALES: Mapping[str, Scale] = {
  **_scales(_ATARI, atari.GAMES, 'atari/'),
  **_scales(_DMLAB, dmlab.LEVELS, 'dmlab/'),
  **_scales(_PROCGEN_HARD, _HARD, 'procgen/'),
  **_scales(_PROCGEN_EASY, _EASY, 'procgen/easy/'),
  **_scales(_MINATAR, reference_scores.MINATAR, 'minatar/'),
  **_scales(_GRIDWORLD, gridworld_tasks.RETURNS),
  'random_chain': Scale(_RANDOM_CHAIN, low=0.0, high=1.0),
  'catch': Scale(_CATCH, low=-1.0, high=1.0),
  'random_catch': Scale(_CATCH, low=-1.0, high=1.0),
  'sokoban': Scale(_SOKOBAN, low=0.0, high=1.0),
  'crafter': Scale(_CRAFTER, *reference_scores.CRAFTER),
}
# Family -> the benchmark of its numbered levels, whose scales are computed.
_COMPUTED = {'random_grid': _RANDOM_GRID, 'lpg': _LPG}
