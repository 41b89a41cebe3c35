"""Compares the agents of labeled runs, at the end of their training.

What an interval resamples is what a sentence is about, see `statistics`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

import numpy as np

from disco_rl.evaluation import normalization
from disco_rl.maths import statistics
from disco_rl.training import learning_curves

# What intervals resample -> the sentence that they answer.
SENTENCES = {
  'agents': 'other agents in these environments',
  'levels': 'other levels like these; all labels meet the same',
  'discoveries': 'other discoveries by the same recipe',
}


@dataclasses.dataclass(frozen=True)
class Label:
  """The runs with one label.

  Attributes:
    name: The label.
    curves: (rule, environment) -> the curve of its agents, whose values are
      scores if there are several environments.
  """

  name: str
  curves: Mapping[tuple[str, str], learning_curves.Curve]

  @property
  def environments(self) -> list[str]:
    """The environments, each once, in the order of their names."""
    return sorted({environment for _, environment in self.curves})

  @property
  def rules(self) -> list[str]:
    """The rules, each once."""
    return list(dict.fromkeys(rule for rule, _ in self.curves))

  def over_levels(self, rule: str) -> learning_curves.Curve:
    """Returns steps [points], and values [S, E, points] of one rule.

    Raises:
      ValueError: Its runs do not have the same environments, agents and steps.
    """
    missing = [x for x in self.environments if (rule, x) not in self.curves]
    if missing:
      raise ValueError(
        f'{self.name} has no run of {rule} in {missing[0]}, but in '
        f'{", ".join(x for r, x in self.curves if r == rule)}: name a run of '
        'each rule in each environment.'
      )
    curves = [self.curves[rule, x] for x in self.environments]
    (steps, first), *others = curves
    for name, (others_steps, values) in zip(self.environments[1:], others):
      if values.shape != first.shape or not np.array_equal(others_steps, steps):
        raise ValueError(
          f'{self.name} has {_shape(others_steps, values)} in {name}, but '
          f'{_shape(steps, first)} in {self.environments[0]}: levels are '
          'averaged after equally many steps of equally many agents.'
        )
    return steps, np.stack([values for _, values in curves], axis=1)

  def scores(self, rule: str) -> np.ndarray:
    """Returns the last values of a rule, [S, E]."""
    return self.over_levels(rule)[1][..., -1]

  @property
  def is_known(self) -> bool:
    """Whether an episode of each agent has ended."""
    return all(np.isfinite(self.scores(x)).all() for x in self.rules)


def normalize(
  environment: str, curve: learning_curves.Curve
) -> learning_curves.Curve:
  """Normalizes returns; raises ValueError if the environment has no scale."""
  scale = normalization.find_scale_of_returns(environment)
  if scale is None:
    raise ValueError(
      f'{environment} has no scale on which its returns could be averaged with '
      'those of other environments: compare one environment at a time.'
    )
  return curve[0], scale.normalize(curve[1])


def curve(label: Label, resampled: str) -> learning_curves.Curve:
  """Returns the curves to draw: of agents, or of discoveries.

  Values are means over the environments.
  """
  curves = [label.over_levels(rule) for rule in label.rules]
  steps, values = curves[0]
  if resampled == 'discoveries':
    if any(not np.array_equal(steps, x) for x, _ in curves):
      raise ValueError(
        f'{label.name} has discoveries with metrics at different steps: their '
        'agents need the same settings.'
      )
    return steps, np.stack([x.mean(axis=(0, 1)) for _, x in curves])
  return steps, values.mean(axis=1)


def table(labels: Sequence[Label], resampled: str) -> Iterator[str]:
  """Yields the lines of a table: means, and differences of pairs.

  Args:
    labels: The labels. Unless discoveries are resampled, each has one rule.
    resampled: 'agents', 'levels' or 'discoveries'.

  Raises:
    ValueError: Runs of a label lack each other's environments, agents or steps.
  """
  kind = 'score' if len(labels[0].environments) > 1 else 'return'
  yield (
    f'Mean {kind}, [95% interval] over {resampled} ({SENTENCES[resampled]}):'
  )
  width = max(len(x.name) for x in labels)
  for label in labels:
    if not label.is_known:
      yield f'  {label.name:{width}}  no episode of some agent has ended'
      continue
    steps, number = label.over_levels(label.rules[0])[0][-1], len(label.rules)
    count = f'{len(label.scores(label.rules[0]))} agents'
    count += f' in {len(label.environments)} environments'
    count += f' of each of {number} discoveries' if number > 1 else ''
    yield (
      f'  {label.name:{width}}  {_shown(_mean(label, resampled))}  after '
      f'{steps:,.0f} environment steps, {count}'
    )
  for x, y in itertools.combinations(labels, 2):
    if not (x.is_known and y.is_known):
      continue
    if x.environments != y.environments:
      yield f'{x.name} and {y.name} have other environments: no difference.'
    else:
      found = _shown(_difference(x, y, resampled))
      yield f'{x.name} minus {y.name}: {found}'


def _mean(label: Label, resampled: str) -> statistics.Estimate:
  """Returns the mean of a label."""
  if resampled == 'discoveries':
    return statistics.across_discoveries(_by_discovery(label))
  scores = label.scores(label.rules[0])
  how = _resampled(resampled)
  return statistics.estimate(statistics.mean, scores, resampled=how)


def _difference(x: Label, y: Label, resampled: str) -> statistics.Estimate:
  """Returns the mean difference of two labels."""
  if resampled == 'discoveries':
    return statistics.between_recipes(_by_discovery(x), _by_discovery(y))
  scores = (x.scores(x.rules[0]), y.scores(y.rules[0]))
  how = _resampled(resampled)
  return statistics.estimate(statistics.difference, *scores, resampled=how)


def _resampled(name: str) -> statistics.Resampled:
  return 'levels' if name == 'levels' else 'agents'


def _by_discovery(label: Label) -> list[float]:
  return [float(np.mean(label.scores(rule))) for rule in label.rules]


def _shown(estimate: statistics.Estimate) -> str:
  bounds = estimate.ci95
  shown = '[one: no interval]'
  if bounds is not None:
    shown = f'[{bounds[0]:.3g}, {bounds[1]:.3g}]'
  return f'{float(estimate.value):.3g} {shown}'


def _shape(steps: np.ndarray, values: np.ndarray) -> str:
  return f'{len(values)} agents until {steps[-1]:,.0f} steps'
