"""Published scores, by which ours are normalised or with which compared.

All are mean undiscounted returns from other papers; only random play of MinAtar
was measured here.
"""

from collections.abc import Mapping
import dataclasses

# Game -> random play, human play. Wang et al., 2016, "Dueling Network
# Architectures", from up to 30 no-ops. Later papers of the same laboratory
# report 0 for random play of Video Pinball: that changes the mean, not the IQM.
ATARI: Mapping[str, tuple[float, float]] = {
  'alien': (227.8, 7127.7),
  'amidar': (5.8, 1719.5),
  'assault': (222.4, 742.0),
  'asterix': (210.0, 8503.3),
  'asteroids': (719.1, 47388.7),
  'atlantis': (12850.0, 29028.1),
  'bank_heist': (14.2, 753.1),
  'battle_zone': (2360.0, 37187.5),
  'beam_rider': (363.9, 16926.5),
  'berzerk': (123.7, 2630.4),
  'bowling': (23.1, 160.7),
  'boxing': (0.1, 12.1),
  'breakout': (1.7, 30.5),
  'centipede': (2090.9, 12017.0),
  'chopper_command': (811.0, 7387.8),
  'crazy_climber': (10780.5, 35829.4),
  'defender': (2874.5, 18688.9),
  'demon_attack': (152.1, 1971.0),
  'double_dunk': (-18.6, -16.4),
  'enduro': (0.0, 860.5),
  'fishing_derby': (-91.7, -38.7),
  'freeway': (0.0, 29.6),
  'frostbite': (65.2, 4334.7),
  'gopher': (257.6, 2412.5),
  'gravitar': (173.0, 3351.4),
  'hero': (1027.0, 30826.4),
  'ice_hockey': (-11.2, 0.9),
  'jamesbond': (29.0, 302.8),
  'kangaroo': (52.0, 3035.0),
  'krull': (1598.0, 2665.5),
  'kung_fu_master': (258.5, 22736.3),
  'montezuma_revenge': (0.0, 4753.3),
  'ms_pacman': (307.3, 6951.6),
  'name_this_game': (2292.3, 8049.0),
  'phoenix': (761.4, 7242.6),
  'pitfall': (-229.4, 6463.7),
  'pong': (-20.7, 14.6),
  'private_eye': (24.9, 69571.3),
  'qbert': (163.9, 13455.0),
  'riverraid': (1338.5, 17118.0),
  'road_runner': (11.5, 7845.0),
  'robotank': (2.2, 11.9),
  'seaquest': (68.4, 42054.7),
  'skiing': (-17098.1, -4336.9),
  'solaris': (1236.3, 12326.7),
  'space_invaders': (148.0, 1668.7),
  'star_gunner': (664.0, 10250.0),
  'surround': (-10.0, 6.5),
  'tennis': (-23.8, -8.3),
  'time_pilot': (3568.0, 5229.2),
  'tutankham': (11.4, 167.6),
  'up_n_down': (533.4, 11693.2),
  'venture': (0.0, 1187.5),
  'video_pinball': (16256.9, 17667.9),
  'wizard_of_wor': (563.5, 4756.5),
  'yars_revenge': (3092.9, 54576.9),
  'zaxxon': (32.5, 9173.3),
}

# Game -> R_min, R_max. Cobbe et al., 2020, "Leveraging Procedural Generation to
# Benchmark Reinforcement Learning", appendix C: the score of an agent that
# receives no observations, and the best score possible or ever reached.
PROCGEN_HARD: Mapping[str, tuple[float, float]] = {
  'bigfish': (0.0, 40.0),
  'bossfight': (0.5, 13.0),
  'caveflyer': (2.0, 13.4),
  'chaser': (0.5, 14.2),
  'climber': (1.0, 12.6),
  'coinrun': (5.0, 10.0),
  'dodgeball': (1.5, 19.0),
  'fruitbot': (-0.5, 27.2),
  'heist': (2.0, 10.0),
  'jumper': (1.0, 10.0),
  'leaper': (1.5, 10.0),
  'maze': (4.0, 10.0),
  'miner': (1.5, 20.0),
  'ninja': (2.0, 10.0),
  'plunder': (3.0, 30.0),
  'starpilot': (1.5, 35.0),
}
PROCGEN_EASY: Mapping[str, tuple[float, float]] = {
  'bigfish': (1.0, 40.0),
  'bossfight': (0.5, 13.0),
  'caveflyer': (3.5, 12.0),
  'chaser': (0.5, 13.0),
  'climber': (2.0, 12.6),
  'coinrun': (5.0, 10.0),
  'dodgeball': (1.5, 19.0),
  'fruitbot': (-1.5, 32.4),
  'heist': (3.5, 10.0),
  'jumper': (3.0, 10.0),
  'leaper': (3.0, 10.0),
  'maze': (5.0, 10.0),
  'miner': (1.5, 13.0),
  'ninja': (3.5, 10.0),
  'plunder': (4.5, 30.0),
  'starpilot': (2.5, 64.0),
}

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
