"""Runs of one plan, each in its own folder: their states and their results."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import pathlib
import re
from typing import Any

from disco_rl import config as config_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import comparison
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources

# File systems allow 255 bytes or fewer, and some names get an ending.
_MAX_FOLDER_NAME = 200


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a plan: a training with a rule, or a discovery.

  Attributes:
    name: The name of the run in messages.
    folder: The folder of the run.
    rule: The name of the rule in figures and tables; a discovery's variant.
    settings: All settings of the run, flat, as in config.json.
    digests: The `digests_of` the rule before the settings were resolved.
  """

  name: str
  folder: pathlib.Path
  rule: str
  settings: Mapping[str, Any] = dataclasses.field(hash=False)
  digests: Mapping[str, str] = dataclasses.field(
    default_factory=dict, hash=False
  )

  @property
  def counter(self) -> str:
    """The setting and entry of summary.json that counts the steps."""
    return 'meta_steps' if 'meta_steps' in self.settings else 'updates'

  @property
  def is_discovery(self) -> bool:
    """Whether the run is a discovery."""
    return self.counter == 'meta_steps'

  @functools.cached_property
  def resolved(
    self,
  ) -> tuple[training_config.TrainingConfig, registry.LoadedRule]:
    """The config and the rule, if the run is a training."""
    return training_config.resolve(self.settings)

  @property
  def config(self) -> training_config.TrainingConfig:
    """The config, if the run is a training."""
    return self.resolved[0]

  @property
  def failure(self) -> str | None:
    """The reason why the run has failed for good; None if it has not."""
    return _read_entry(self.folder / 'failure.json', 'reason', str)

  @property
  def is_over(self) -> bool:
    """Whether the run has finished, or failed for good.

    A discovery has also finished if `held_out_patience` has ended it.
    """
    if self.failure is not None:
      return True
    summary = self.folder / 'summary.json'
    done = _read_entry(summary, self.counter, int)
    if done is None or done >= self.settings[self.counter]:
      return done is not None
    patience = self.settings.get('held_out_patience', 0)
    return 0 < patience <= _read_entry(summary, 'evaluations_since_rule', int)

  def check_rule(self) -> None:
    """Checks that all runs planned at the same time use the same rule.

    Each process that makes a run reads the file, and calls this afterwards.

    Raises:
      files.WorkdirError: The file has changed since.
    """
    if digests_of(self.settings['rule']) != self.digests:
      raise files.WorkdirError(
        f'{self.settings["rule"]} has changed since the runs were planned: '
        'those before used another rule. Restore the file to make the rest, or '
        'choose another --workdir.'
      )

  def fail(self, reason: str) -> None:
    """Records that the run cannot continue, so that it is not repeated."""
    self.folder.mkdir(parents=True, exist_ok=True)
    json_files.write(self.folder / 'failure.json', {'reason': reason})


def digests_of(rule: str) -> dict[str, str]:
  """Returns the SHA-256 of the file of a rule, by its name, if it can change.

  Raises:
    OSError: There is no such file.
  """
  paths = sources.files_among([rule])
  for path in paths.values():
    sources.check_exists(path)
  return workdirs.digests_of(paths)


def training(
  name: str,
  folder: pathlib.Path,
  rule: str,
  given: Mapping[str, object],
  rollouts: int | None = None,
) -> Run:
  """Makes a run that trains agents with a rule.

  Args:
    name: The name of the run in messages.
    folder: The folder of the run, which may already contain it.
    rule: The name of the rule in figures and tables.
    given: The flat settings that `training_config.config_of` takes.
    rollouts: The number of rollouts, instead of the setting `updates`; then
      `log_every` also counts rollouts.

  Raises:
    ValueError: A setting is unknown or not valid.
    OSError: The file of the rule cannot be read or downloaded.
  """
  digests = digests_of(
    str(given.get('rule', training_config.TrainingConfig.rule))
  )
  settings = config_lib.flatten(training_config.config_of(given, rollouts))
  settings = workdirs.with_choices(folder, settings)
  return Run(name, folder, rule, settings, digests)


def check(
  runs: Sequence[Run],
  free: Collection[str] = training_config.FREE,
  complete: workdirs.Complete = training_config.complete,
) -> None:
  """Checks for errors that would end runs later.

  Args:
    runs: All runs.
    free: The settings that may change when a run is resumed.
    complete: Adds settings that a config.json lacks; see `workdirs.claim`.

  Raises:
    ValueError: Two runs would share a folder, or the name of an environment is
      unknown.
    ImportError: An environment needs a package that is not installed.
    files.WorkdirError: The folder of a run contains other settings, or the file
      of its rule has changed since.
  """
  folders = [run.folder for run in runs]
  if twice := [x for x in dict.fromkeys(folders) if folders.count(x) > 1]:
    raise ValueError(
      f'Several runs would share the folder {twice[0]}: leave out what is '
      'named twice, or give it another name.'
    )
  trained = [run for run in runs if not run.is_discovery]
  for environment in dict.fromkeys(x.config.environment for x in trained):
    environment_registry.validate(environment)
  for run in runs:
    workdirs.check(run.folder, run.settings, free, complete)
    workdirs.check_rules(
      run.folder, sources.files_among([run.settings['rule']])
    )
    run.check_rule()


def read(
  run: Run, updates: int | None = None, failure: str | None = None
) -> comparison.Result:
  """Reads the result of a finished or failed training.

  Args:
    run: The run.
    updates: The number of updates after which agents are scored; None: all.
    failure: The reason why it has failed, if its folder does not tell.

  Raises:
    OSError: The metrics cannot be read.
    files.WorkdirError: They are damaged, or have changed since the run ended.
  """
  config = run.config
  identity = config.environment, run.rule, config.agent.learning_rate
  if (failure := failure or run.failure) is not None:
    return comparison.Result(*identity, failure=failure)
  updates = config.updates if updates is None else updates
  return comparison.read_result(run.folder / 'metrics.csv', *identity, updates)


def slug(name: str) -> str:
  """Converts a name to that of a folder; cuts long ones, such as paths."""
  short = name.removesuffix('.npz')
  text = re.sub('[^A-Za-z0-9_.]+', '-', short).strip('-.')
  if len(text) <= _MAX_FOLDER_NAME:
    return text
  # Long names are often equal except for their end.
  digest = hashlib.sha256(short.encode()).hexdigest()[:10]
  return f'{text[: _MAX_FOLDER_NAME - 11]}-{digest}'


def labels(rules: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
  """Returns names for figures and tables.

  The file rule.npz of a run is named after the run, other paths after their
  last part. If that is taken, or shared by several rules, the whole path is
  used.
  """
  short = [_label(pathlib.PurePath(x.removesuffix('.npz'))) for x in rules]
  return {
    rule: name if [*short, *taken].count(name) == 1 else rule
    for rule, name in zip(rules, short)
  }


def _label(path: pathlib.PurePath) -> str:
  return (path.name == 'rule' and path.parent.name) or path.name


def _read_entry(path: pathlib.Path, key: str, kind: type) -> Any:
  """Reads an entry of a JSON file; None if the file does not exist."""
  if not path.exists():
    return None
  value = json_files.read(path).get(key)
  if not isinstance(value, kind):
    raise files.WorkdirError(
      f'{path} has {key}={value!r}, which is not {kind.__name__}: likely '
      "damaged, or not written by a run. Delete the run's folder to repeat it."
    )
  return value
