"""Writes the discovered rule of a run: its weights and its card."""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import pathlib
import subprocess
from typing import Any

import jax
import numpy as np

import disco_rl
from disco_rl import types
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import population
from disco_rl.meta_training import reporting
from disco_rl.meta_training import selection as selection_lib
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry
from disco_rl.update_rules import weights


def provenance(seconds: float, devices: int) -> dict[str, Any]:
  """Returns fields of a card: versions and compute of a discovery."""
  return {
    'versions': {'disco_rl': _version(), 'jax': jax.__version__},
    'compute': {
      'seconds': seconds,
      'devices': devices,
      'kind': jax.devices()[0].device_kind,
    },
  }


@functools.cache
def _version() -> str:
  """Returns the version, in a clone with the commit: 0.2.0+1a2b3c4d5."""
  root = pathlib.Path(disco_rl.__file__).parents[1]
  # Otherwise the package may be installed within another repository.
  if not (root / '.git').exists():
    return disco_rl.__version__
  describe = ('describe', '--always', '--abbrev=9', '--exclude=*')
  try:
    commit = subprocess.run(
      ('git', *describe, '--dirty=.changed'),
      cwd=root,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return disco_rl.__version__  # Without git, or in another user's folder.
  return f'{disco_rl.__version__}+{commit}'


@dataclasses.dataclass(frozen=True)
class RuleFiles:
  """Writes rules and their cards into the folder of a run.

  With held-out environments, rule.npz is the best rule and newest_rule.npz the
  newest one; without, rule.npz is the newest. The card of rule.npz is
  rule.json.

  Attributes:
    workdir: The folder.
    rule: The rule that is being discovered.
    config: The configuration of the run.
    groups: The population.
    settings: The settings of the run in config.json.
  """

  workdir: pathlib.Path
  rule: base.UpdateRule
  config: meta_config.MetaTrainingConfig
  groups: Sequence[population.Group]
  settings: Mapping[str, object]

  def save(
    self,
    state: meta_step.State,
    seconds: float,
    selection: selection_lib.Selection | None,
  ) -> None:
    """Writes the rules after these seconds of discovery."""
    steps = reporting.total_steps(self.groups, state.environment_steps)
    newest = (state.rule, state.meta_step, steps, seconds)
    if selection is None:
      self._write('rule.npz', *newest)
      return
    chosen, count = selection.chosen, selection.newest.number + 1
    self._write(
      'rule.npz',
      chosen.rule,
      chosen.meta_step,
      chosen.environment_steps,
      chosen.seconds,
      note=f' Of {count:,} evaluations up to meta-step {state.meta_step:,}, '
      'held-out agents of this rule earned most.',
    )
    self._write('newest_rule.npz', *newest)

  def save_initial(self, params: types.Params) -> None:
    """Writes initial_rule.npz, the rule before discovery, and its card."""
    self._write('initial_rule.npz', params, 0, 0, seconds=0.0)

  def _write(
    self,
    name: str,
    params: types.Params,
    step: int,
    environment_steps: int,
    seconds: float,
    note: str = '',
  ) -> None:
    path = self.workdir / name
    registry.save(path, self.rule, jax.device_get(params))
    card = self._card(path, step, environment_steps, seconds, note)
    json_files.write(cards.path_of(path), dataclasses.asdict(card))

  def restore(
    self,
    state: meta_step.State,
    seconds: float,
    selection: selection_lib.Selection | None,
  ) -> None:
    """Writes the rules of a checkpoint; reports weights that were lost."""
    path = self.workdir / 'rule.npz'
    try:
      weights.load(path)
    except (OSError, weights.WeightsError) as error:
      if distributed.is_first():
        reports.warn(
          f'{path} is missing or damaged, and is written again from the '
          f'checkpoint of meta-step {state.meta_step}. {error}'
        )
    self.save(state, seconds, selection)

  def _card(
    self,
    path: pathlib.Path,
    step: int,
    environment_steps: int,
    seconds: float,
    note: str,
  ) -> cards.Card:
    config = self.config
    begins = (
      'an untrained rule'
      if config.rule == meta_config.UNTRAINED
      else config.rule
    )
    return cards.Card(
      name=self.workdir.resolve().name,
      description=(
        f'Discovered in {step:,} meta-steps of {config.agents} agents on '
        f'{_listed(config.environments)}, from {begins}.{note}'
      ),
      environments=config.environments,
      agents=config.agents,
      meta_steps=step,
      environment_steps=environment_steps,
      seed=config.seed,
      settings=self.settings,
      **provenance(seconds, jax.device_count()),
      held_out=self._held_out(step),
      sha256=cards.sha256_of(path),
    )

  def _held_out(self, step: int) -> dict[str, object]:
    """Returns the newest evaluation up to a meta-step, for a card."""
    columns: Mapping[str, np.ndarray] = {}
    # A missing card must not end the run; readers of these rows report damage.
    with contextlib.suppress(OSError, files.WorkdirError):
      columns = metrics.read(self.workdir / 'held_out' / 'metrics.csv')
    if not columns or not np.any(columns['meta_step'] <= step):
      return {}
    newest = np.max(columns['meta_step'][columns['meta_step'] <= step])
    return {
      'meta_step': newest,
      'updates': self.config.held_out.updates,
      'agents': self.config.held_out.seeds,
      'returns': {
        columns['environment'][i]: {
          'mean': columns['return'][i],
          'min': columns['return_min'][i],
          'max': columns['return_max'][i],
        }
        for i in np.flatnonzero(columns['meta_step'] == newest)
      },
    }


def _listed(names: Sequence[str], limit: int = 4) -> str:
  """Lists the first names, and the number of others."""
  more = len(names) - limit
  shown = ', '.join(names[:limit])
  return f'{shown} and {more} more' if more > 0 else shown
