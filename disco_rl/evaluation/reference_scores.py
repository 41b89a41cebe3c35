"""Scores that the DiscoRL paper publishes, for comparison with ours.

All are mean undiscounted returns.
"""

import csv
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Published:
  """A score from the DiscoRL paper, whose agents are larger than our defaults.

  Attributes:
    subject: The name of an environment, or of a benchmark for its IQM.
    method: The name of the rule or algorithm.
    value: The mean return, or the normalized IQM.
    environment_steps: The steps of training; None if the paper's table does not
      state it.
  """

  subject: str
  method: str
  value: float
  environment_steps: float | None


def _read_paper() -> tuple[Published, ...]:
  """Reads the scores of published_scores.csv.

  They are transcribed from Extended Data Tables 1 to 3 and the text (Oh et al.,
  2025); the digits were not compared with the publication. The IQM of Atari
  seems to be over all agents: the IQM of the table's means is 14.5.
  """
  path = pathlib.Path(__file__).with_name('published_scores.csv')
  with path.open(newline='', encoding='utf-8') as file:
    return tuple(
      Published(
        row['subject'],
        row['method'],
        float(row['value']),
        float(row['environment_steps']) if row['environment_steps'] else None,
      )
      for row in csv.DictReader(file)
    )


PAPER = _read_paper()
# Family of environments -> how our numbers differ, or may, from the paper's.
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
    '--play_in=dmlab/..._test does so. Its table names a "V2" of Skymaze '
    'Irreversible Path Hard and Varied, which DMLab-30 does not have: the '
    'scores are shown with the public levels.'
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
