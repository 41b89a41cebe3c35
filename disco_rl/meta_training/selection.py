"""The choice of the rule that a discovery saves, by its held-out agents.

The newest rule is not always the best one. After each evaluation, the score of
a rule is the mean return of its held-out agents, averaged over environments. A
few agents say little, so the score is smoothed: it is averaged with those of
the evaluations just before and after, whose rules are similar. The rule with
the best smoothed score is chosen.

Environments that choose the rule do not tell what it is worth elsewhere: judge
it in others. The paper does not describe such a choice.
"""

from collections.abc import Mapping
import dataclasses

import jax
import numpy as np

from disco_rl import types
from disco_rl.evaluation import normalization


@dataclasses.dataclass(frozen=True)
class Candidate:
  """A rule that was evaluated.

  Attributes:
    rule: The parameters, NumPy arrays.
    meta_step: The number of meta-updates so far.
    environment_steps: The environment steps of the population so far.
    seconds: The seconds of discovery so far.
    number: The number of the evaluation, from 0.
    scores: [3], the scores of the evaluation before, of this one, and of the
      one after; NaN where there is none.
  """

  rule: types.Params
  meta_step: int
  environment_steps: int
  seconds: float
  number: int
  scores: np.ndarray

  @property
  def smoothed(self) -> float:
    """The mean of the scores; -inf if the candidate's own is not finite."""
    if not np.isfinite(self.scores[1]):
      return -np.inf
    return float(np.mean(self.scores[np.isfinite(self.scores)]))


@dataclasses.dataclass(frozen=True)
class Selection:
  """The candidates that can still be chosen.

  Only the newest candidate's score can change, so two of them suffice.

  Attributes:
    best: The best candidate before the newest one.
    newest: The rule of the newest evaluation.
  """

  best: Candidate
  newest: Candidate

  @property
  def chosen(self) -> Candidate:
    """The candidate with the best smoothed score, among equals the newest."""
    return _better(self.best, self.newest)

  @property
  def evaluations_since(self) -> int:
    """The number of evaluations after the one of the chosen rule."""
    return self.newest.number - self.chosen.number


def add(
  selection: Selection | None,
  rule: types.Params,
  returns: Mapping[str, np.ndarray],
  meta_step: int,
  environment_steps: int,
  seconds: float,
) -> Selection:
  """Adds the rule of an evaluation.

  Args:
    selection: The selection so far; None before the first evaluation.
    rule: The parameters.
    returns: The mean return of each agent, [agents] by environment.
    meta_step: The number of meta-updates so far.
    environment_steps: The environment steps of the population so far.
    seconds: The seconds of discovery so far.
  """
  number, before = 0, np.nan
  if selection is not None:
    number = selection.newest.number + 1
    before = selection.newest.scores[1]
  own = score(returns)
  candidate = Candidate(
    # Copies, since meta-steps donate the memory of parameters.
    rule=jax.tree.map(np.array, rule),
    meta_step=meta_step,
    environment_steps=environment_steps,
    seconds=seconds,
    number=number,
    scores=np.array([before, own, np.nan]),
  )
  if selection is None:
    return Selection(candidate, candidate)
  newest = selection.newest
  finished = dataclasses.replace(
    newest, scores=np.array([*newest.scores[:2], own])
  )
  # The first candidate is both the best and the newest.
  is_first = selection.best.number == newest.number
  best = finished if is_first else _better(selection.best, finished)
  return Selection(best, candidate)


def score(returns: Mapping[str, np.ndarray]) -> float:
  """Averages returns over agents and environments.

  Returns are normalized if their environment has reference scores of returns,
  see `normalization`. NaN if an agent has not finished an episode.
  """
  values = []
  for name, of_agents in returns.items():
    scale = normalization.find_scale_of_returns(name)
    values.append(np.mean(scale.normalize(of_agents) if scale else of_agents))
  return float(np.mean(values))


def to_tree(selection: Selection | None) -> types.PyTree:
  """Returns the content of a checkpoint; {} if there is no selection."""
  if selection is None:
    return {}
  return {
    part: {
      field.name: jax.tree.map(np.asarray, getattr(candidate, field.name))
      for field in dataclasses.fields(Candidate)
    }
    for part, candidate in vars(selection).items()
  }


def from_tree(tree: types.PyTree) -> Selection | None:
  """Makes a selection from the content of a checkpoint."""
  if not tree:
    return None
  return Selection(
    **{
      part: Candidate(
        rule=values['rule'],
        meta_step=int(values['meta_step']),
        environment_steps=int(values['environment_steps']),
        seconds=float(values['seconds']),
        number=int(values['number']),
        scores=np.asarray(values['scores']),
      )
      for part, values in tree.items()
    }
  )


def _better(first: Candidate, second: Candidate) -> Candidate:
  return first if first.smoothed > second.smoothed else second
