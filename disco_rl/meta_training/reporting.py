"""Reports of a discovery run: rows of metrics, failures, the summary."""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib

import numpy as np

from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.meta_training import population
from disco_rl.runtime import files
from disco_rl.runtime import metrics

# The consecutive meta-steps in which an agent may fail before the run ends.
_MAX_FAILURES = 3


def agent_names(groups: Sequence[population.Group]) -> list[str]:
  """Lists the environment of each agent, group by group, with padding."""
  return [name for group in groups for name in group.config.names]


def rows(
  meta_step: int,
  groups: Sequence[population.Group],
  environment_steps: Sequence[np.ndarray],
  logs: Sequence[Mapping[str, np.ndarray]],
  rule_update_norm: float,
) -> list[dict[str, object]]:
  """Makes rows of metrics, one per environment, with means over agents.

  Args:
    meta_step: The number of meta-updates so far.
    groups: The population, whose padding is ignored.
    environment_steps: The environment steps so far of each group, [n].
    logs: The logs of each group, [n].
    rule_update_norm: The norm of the meta-update.
  """
  names = np.array(agent_names(groups))
  counts = _counts(groups)
  values = {key: np.concatenate([x[key] for x in logs]) for key in logs[0]}
  steps = np.concatenate(environment_steps)
  table = []
  for name in dict.fromkeys(names.tolist()):
    own = counts & (names == name)
    table.append(
      {
        'meta_step': meta_step,
        'environment': name,
        'agents': int(own.sum()),
        'environment_steps': int(steps[own].sum()),
        'rule_update_norm': rule_update_norm,
        **{key: _mean(value[own]) for key, value in values.items()},
        'failed': int(values['failed'][own].sum()),
      }
    )
  return table


def total_steps(
  groups: Sequence[population.Group], environment_steps: Sequence[np.ndarray]
) -> int:
  """Adds up the environment steps of all agents; padding is ignored."""
  return int(np.concatenate(environment_steps)[_counts(groups)].sum())


def failures(
  meta_step: int,
  groups: Sequence[population.Group],
  lifetimes: Sequence[lifetimes_lib.Lifetimes],
) -> list[str]:
  """Makes a message for each agent that failed in the last meta-step.

  Padding is ignored.

  Raises:
    metrics.NonFiniteError: An agent has failed too many times in a row.
  """
  names = agent_names(groups)
  numbers = [number for group in groups for number in group.config.numbers]
  streaks = np.concatenate([x.failures for x in lifetimes])
  messages = []
  for i in np.flatnonzero(streaks * _counts(groups)).tolist():
    what = f'A loss or the meta-gradient of agent {numbers[i]}, in {names[i]}, '
    what += 'is not finite in meta-step'
    if streaks[i] >= _MAX_FAILURES:
      raise metrics.NonFiniteError(
        f'{what}s {meta_step - int(streaks[i]) + 1} to {meta_step}, though the '
        'agent is reset after each. Likely causes: a learning_rate or '
        'meta_learning_rate that is too high, or rewards that are not finite.'
      )
    messages.append(
      f'{what} {meta_step}: its meta-update is dropped, and the agent is reset'
    )
  return messages


def for_progress_bar(table: Sequence[metrics.Row]) -> metrics.Row:
  """Selects values for the progress bar from rows of metrics."""
  returns = np.array([row['return'] for row in table])
  steps = sum(row['environment_steps'] for row in table)
  return {'return': _mean(returns), 'steps': f'{steps:.3g}'}


def summary(workdir: pathlib.Path, rule_meta_step: int) -> dict[str, object]:
  """Returns the part of a run's summary that its metrics contain.

  Args:
    workdir: The folder of the run.
    rule_meta_step: The meta-step of rule.npz, whose held-out returns are
      reported.
  """
  last = _last_rows(workdir / 'metrics.csv')
  held_out = metrics.read(workdir / 'held_out' / 'metrics.csv')
  return {
    'meta_steps': int(last['meta_step'][0]),
    'environment_steps': int(np.sum(last['environment_steps'])),
    'return': _returns(last),
    'held_out': (
      _returns(_rows_of(rule_meta_step, held_out)) if held_out else {}
    ),
  }


def _counts(groups: Sequence[population.Group]) -> np.ndarray:
  """Returns whether each agent of `agent_names` counts, [n] bool."""
  return np.concatenate([group.config.counts for group in groups])


def _mean(values: np.ndarray) -> float:
  """Computes the mean over finite values; NaN if there are none."""
  values = values[np.isfinite(values)]
  return float(np.mean(values)) if len(values) else float('nan')


def _last_rows(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads the columns of the last meta-step."""
  columns = metrics.read(path)
  if not columns or not len(columns['meta_step']):
    raise files.WorkdirError(
      f'{path} has lost its rows, which the summary needs: restore the file. '
      'The rule and the checkpoints are complete.'
    )
  return _rows_of(np.max(columns['meta_step']), columns)


def _rows_of(
  meta_step: int, columns: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Returns the columns of one meta-step."""
  is_own = columns['meta_step'] == meta_step
  return {key: column[is_own] for key, column in columns.items()}


def _returns(columns: Mapping[str, np.ndarray]) -> dict[str, object]:
  """Returns mean returns by environment."""
  return dict(zip(columns['environment'].tolist(), columns['return']))
