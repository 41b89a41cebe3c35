"""Published scores, by which ours are normalised or with which compared.

All are mean undiscounted returns from other papers; only random play of MinAtar
was measured here.
"""

from collections.abc import Mapping
import dataclasses

# Random play, human experts. Hafner, 2022, "Benchmarking the Spectrum of Agent
# Capabilities", table of rewards.
CRAFTER = (2.1, 14.3)

# Game -> random play, PPO. Random play is the mean over 1,000 (Freeway) to
# 98,000 episodes, standard errors up to 0.025; PPO the returns of the
# checkpoints that the README of gymnax lists (Lange, 2022), which has none for
# Seaquest.
MINATAR: Mapping[str, tuple[float, float]] = {
  'asterix': (0.50, 15.0),
  'breakout': (0.41, 28.0),
  'freeway': (0.36, 58.0),
  'space_invaders': (4.13, 131.0),
}


@dataclasses.dataclass(frozen=True)
class Published:
  """A score from the DiscoRL paper, whose agents are larger than our defaults.

  Attributes:
    subject: name of an environment, or of a benchmark for its IQM.
    method: name of the rule or algorithm.
    value: mean return, or normalised IQM.
    environment_steps: of training; None if the paper's table does not state it.
  """

  subject: str
  method: str
  value: float
  environment_steps: float | None


# Oh et al., 2025.
PAPER = (
  Published('atari', 'Disco57', 13.86, 2e8),
  Published('atari/ms_pacman', 'Disco57', 101_876, 2e8),
  Published('atari/ms_pacman', 'Disco103', 101_290, 2e8),
  Published('atari/ms_pacman', 'MuZero', 79_319, None),
  Published('procgen/bigfish', 'Disco57', 34.61, 5e7),
  Published('procgen/bigfish', 'Disco103', 35.80, 5e7),
  Published('procgen/coinrun', 'Disco57', 9.93, 5e7),
  Published('procgen/coinrun', 'Disco103', 9.95, 5e7),
  Published('procgen/starpilot', 'Disco57', 41.42, 5e7),
  Published('procgen/starpilot', 'Disco103', 44.0, 5e7),
  Published('dmlab/rooms_watermaze', 'Disco57', 19.89, 3e8),
  Published('dmlab/rooms_watermaze', 'Disco103', 31.46, 3e8),
  Published('dmlab/rooms_watermaze', 'IMPALA', 26.90, 1e9),
  Published('crafter', 'Disco57', 7.58, 1e6),
  Published('crafter', 'Disco103', 6.59, 1e6),
  Published('crafter', 'Dreamer', 11.70, 1e6),
  Published('crafter', 'Disco57', 13.18, 2e7),
  Published('crafter', 'Disco103', 14.56, 2e7),
  Published('nethack/score', 'Disco57', 938.10, None),
  Published('nethack/score', 'Disco103', 1114.24, None),
  Published('nethack/score', 'IMPALA', 188.95, None),
)
