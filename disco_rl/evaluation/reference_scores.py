"""Published scores, by which ours are normalised or with which compared.

All are mean undiscounted returns from other papers; only random play of MinAtar
was measured here.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
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


# Oh et al., 2025, from a transcription of the tables whose digits were not
# compared with the publication.
# Game -> MuZero, Disco57, Disco103 (Extended Data Table 1).
_ATARI = {
  'alien': (135_541, 322_137, 333_105),
  'amidar': (1061, 1384, 14_593),
  'assault': (29_697, 34_676, 33_546),
  'asterix': (918_628, 814_458, 773_870),
  'asteroids': (509_953, 499_430, 490_463),
  'atlantis': (1_136_009, 1_112_262, 1_083_115),
  'bank_heist': (14_176, 1219, 1368),
  'battle_zone': (320_641, 98_764, 94_730),
  'beam_rider': (319_684, 215_580, 328_418),
  'berzerk': (19_523, 74_633, 72_922),
  'bowling': (156, 197, 219),
  'boxing': (100, 99, 99),
  'breakout': (778, 798, 719),
  'centipede': (862_737, 893_158, 899_572),
  'chopper_command': (494_578, 967_905, 337_167),
  'crazy_climber': (176_172, 176_195, 173_933),
  'defender': (544_320, 640_052, 650_392),
  'demon_attack': (143_846, 143_656, 143_710),
  'double_dunk': (24, 23, 23),
  'enduro': (2363, 2364, 2373),
  'fishing_derby': (69, 57, 76),
  'freeway': (34, 33, 16),
  'frostbite': (410_173, 1652, 1214),
  'gopher': (121_342, 125_875, 120_536),
  'gravitar': (10_926, 13_722, 10_384),
  'hero': (37_249, 31_605, 29_031),
  'ice_hockey': (40, 31, 40),
  'jamesbond': (32_107, 35_441, 31_636),
  'kangaroo': (13_928, 13_603, 13_196),
  'krull': (50_137, 62_579, 60_703),
  'kung_fu_master': (148_533, 102_679, 89_081),
  'montezuma_revenge': (1450, 2559, 400),
  'ms_pacman': (79_319, 101_876, 101_290),
  'name_this_game': (108_133, 98_867, 103_914),
  'phoenix': (748_424, 867_704, 841_925),
  'pitfall': (0, -1, 0),
  'pong': (21, 20, 20),
  'private_eye': (7600, 27_833, 5598),
  'qbert': (85_926, 127_630, 133_099),
  'riverraid': (172_266, 67_916, 44_260),
  'road_runner': (554_956, 311_239, 356_701),
  'robotank': (85, 108, 108),
  'seaquest': (501_236, 999_994, 999_991),
  'skiing': (-30_000, -29_949, -30_072),
  'solaris': (4401, 2314, 2396),
  'space_invaders': (31_265, 64_092, 44_213),
  'star_gunner': (158_608, 568_369, 564_206),
  'surround': (10, 9, 8),
  'tennis': (0, 23, 23),
  'time_pilot': (413_988, 411_305, 388_002),
  'tutankham': (318, 230, 347),
  'up_n_down': (606_602, 640_537, 629_513),
  'venture': (866, 1960, 0),
  'video_pinball': (921_563, 877_143, 762_964),
  'wizard_of_wor': (103_463, 100_942, 102_435),
  'yars_revenge': (187_731, 144_298, 201_832),
  'zaxxon': (106_935, 36_011, 37_081),
}
# Game -> PPO, Disco57, Disco103 (Extended Data Table 2).
_PROCGEN = {
  'bigfish': (10.92, 34.61, 35.8),
  'bossfight': (10.47, 12.53, 12.65),
  'caveflyer': (6.03, 9.41, 9.93),
  'chaser': (4.48, 12.83, 13.26),
  'climber': (7.59, 11.74, 12.37),
  'coinrun': (7.93, 9.93, 9.95),
  'dodgeball': (4.8, 18.61, 18.72),
  'fruitbot': (20.28, 26.41, 27.84),
  'heist': (2.25, 3.53, 5.56),
  'jumper': (5.09, 8.74, 9.05),
  'leaper': (5.9, 9.91, 9.89),
  'maze': (4.97, 9.16, 9.52),
  'miner': (7.56, 18.52, 21.48),
  'ninja': (6.16, 9.88, 9.94),
  'plunder': (11.16, 7.04, 7.44),
  'starpilot': (17, 41.42, 44.07),
}
# Level -> IMPALA, Disco57, Disco103 (Extended Data Table 3).
_DMLAB = {
  'explore_goal_locations_large': (83.1, 36.86, 96.62),
  'explore_goal_locations_small': (209.4, 208.78, 224.11),
  'explore_object_locations_large': (37, 32.84, 41.78),
  'explore_object_locations_small': (57.8, 56.08, 64.89),
  'explore_object_rewards_few': (39.8, 30.11, 37.99),
  'explore_object_rewards_many': (58.7, 48.5, 55.28),
  'explore_obstructed_goals_large': (39.5, 5.84, 39.46),
  'explore_obstructed_goals_small': (135.2, 78.18, 162.72),
  'language_answer_quantitative_question': (219.4, 2.42, 318.62),
  'language_execute_random_task': (-49.9, -1.65, 310.43),
  'language_select_described_object': (324.6, 600.19, 605.19),
  'language_select_located_object': (189, 1.27, 655.57),
  'lasertag_one_opponent_large': (-0.2, -0.01, -0.01),
  'lasertag_one_opponent_small': (-0.1, 0, -0.05),
  'lasertag_three_opponents_large': (-0.1, 0.45, 7.27),
  'lasertag_three_opponents_small': (19.1, 27.42, 34.95),
  'natlab_fixed_large_map': (34.7, 41.17, 55.05),
  'natlab_varying_map_randomized': (36.1, 37.02, 38.97),
  'natlab_varying_map_regrowth': (20.7, 20.44, 25.66),
  'psychlab_arbitrary_visuomotor_mapping': (16.4, 13.41, 16.26),
  'psychlab_continuous_recognition': (29.9, 30.49, 30.35),
  'psychlab_sequential_comparison': (0, 0, 0),
  'psychlab_visual_search': (0, 0, 0),
  'rooms_collect_good_objects_test': (9, 8.61, 8.99),
  'rooms_exploit_deferred_effects_test': (15.6, 39.63, 39.45),
  'rooms_keys_doors_puzzle': (28, 26.27, 39.45),
  'rooms_select_nonmatching_object': (7.3, 5.68, 6.13),
  'rooms_watermaze': (26.9, 19.89, 31.46),
  'skymaze_irreversible_path_hard': (13.6, 0, 0.05),
  'skymaze_irreversible_path_varied': (45.1, 43.58, 68.17),
}


def _of_table(
  family: str,
  table: Mapping[str, Sequence[float]],
  methods: Mapping[str, float],
) -> Iterator[Published]:
  """The columns of a table: of `methods`, with the steps of each."""
  for variant, values in table.items():
    for (method, steps), value in zip(methods.items(), values, strict=True):
      yield Published(f'{family}/{variant}', method, value, steps)


_AT_200M = {'MuZero': 2e8, 'Disco57': 2e8, 'Disco103': 2e8}
_AT_50M = {'PPO': 5e7, 'Disco57': 5e7, 'Disco103': 5e7}
PAPER = (
  # Of all agents, it seems: the table's means have an IQM of 14.5.
  Published('atari', 'Disco57', 13.86, 2e8),
  *_of_table('atari', _ATARI, _AT_200M),
  *_of_table('procgen', _PROCGEN, _AT_50M),
  *_of_table('dmlab', _DMLAB, {'IMPALA': 1e9, 'Disco57': 3e8, 'Disco103': 3e8}),
  Published('crafter', 'Disco57', 7.58, 1e6),
  Published('crafter', 'Disco103', 6.59, 1e6),
  Published('crafter', 'PPO', 4.20, 1e6),
  Published('crafter', 'Rainbow', 5.00, 1e6),
  Published('crafter', 'Dreamer', 11.70, 1e6),
  Published('crafter', 'Disco57', 13.18, 2e7),
  Published('crafter', 'Disco103', 14.56, 2e7),
  Published('nethack/challenge', 'Disco57', 938.10, None),
  Published('nethack/challenge', 'Disco103', 1114.24, None),
  Published('nethack/challenge', 'IMPALA', 188.95, None),
)
# Family of environments -> how our numbers differ from the paper's, or may.
DIFFERENCES = {
  'atari': (
    'The paper does not state its protocol. Assumed are sticky actions, all 18 '
    'actions, no no-ops at the start, and rewards that are not clipped.'
  ),
  'crafter': (
    'The paper does not state how its network reads 32 frames; here they are '
    'channels of one image.'
  ),
  'dmlab': (
    'Two levels, rooms_collect_good_objects and '
    'rooms_exploit_deferred_effects, are scored in the variants that agents '
    'are trained in. The paper scores their test variants: disco-rl play '
    '--play_in=dmlab/..._test does so.'
  ),
  'nethack': (
    'The paper does not state what its agents observe, and contradicts itself '
    'on environment steps: 200 million in Extended Data Table 6, while the '
    'axis of Fig. 2e goes to 2,000 million.'
  ),
  'procgen': (
    'The games are those of EnvPool; in five of 16, some pixels differ from '
    'the original. As in the paper, agents are scored in the levels that they '
    'are trained in.'
  ),
}
