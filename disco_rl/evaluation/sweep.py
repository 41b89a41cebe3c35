"""Sweeps: a run for each of environments x rules x learning rates."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
import pathlib
import re
from typing import Annotated
from typing import Any

from disco_rl import config as config_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.environments import suites
from disco_rl.evaluation import comparison
from disco_rl.evaluation import runner
from disco_rl.runtime import jobs as jobs_lib
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources

# Settings that a resumed sweep may change.
_FREE = ('environments', 'rules', 'learning_rates', *runner.FREE)


@dataclasses.dataclass(frozen=True)
class Lists(config_lib.Settings):
  """What a sweep runs in turn; without lists there is one run.

  Attributes:
    environments: environments and suites, with commas between.
    rules: rules, with commas between.
    learning_rates: learning rates of the agents.
  """

  environments: suites.Names = ()
  rules: tuple[str, ...] = ()
  learning_rates: Annotated[
    tuple[float, ...], config_lib.each_positive('learning rates')
  ] = ()


@dataclasses.dataclass(frozen=True)
class Job(jobs_lib.Job):
  """One run of a sweep.

  Attributes:
    config: of the run.
    description: settings as the user gave them, for config.json.
    rule: name of the rule in figures and tables.
  """

  config: runner.EvaluationConfig
  description: Mapping[str, Any]
  rule: str


def plan(
  settings: Mapping[str, Any],
  environments: Sequence[str],
  rules: Sequence[str],
  learning_rates: Sequence[float | None],
  to_config: Callable[[Mapping[str, Any]], runner.EvaluationConfig],
  workdir: pathlib.Path,
) -> list[Job]:
  """Lists the runs of a sweep; environments change slowest.

  Args:
    settings: shared by all runs.
    environments: names.
    rules: names or paths.
    learning_rates: of the agents; None: as the settings say for the rule.
    to_config: converts the settings of one run to its config.
    workdir: the folder of the sweep, with a run in each of its folders
      ENVIRONMENT/RULE/LEARNING_RATE, where - replaces / in names.

  Returns:
    The runs.

  Raises:
    ValueError: a list is empty or has duplicates, two names would share a
      folder, or a setting is not valid.
  """
  _check_distinct('environments', environments)
  _check_distinct('rules', rules)
  _check_distinct('learning_rates', learning_rates)
  names = labels(rules)
  jobs = []
  for environment, rule, rate in itertools.product(
    environments, rules, learning_rates
  ):
    description = {**settings, 'environment': environment, 'rule': rule}
    if rate is not None:
      description['learning_rate'] = rate
    config = to_config(description)
    rate = config.agent.learning_rate
    folder = workdir.joinpath(*map(slug, (environment, rule, f'{rate}')))
    description = workdirs.with_choices(folder, config_lib.flatten(config))
    config = to_config(description)
    jobs.append(
      Job(
        name=f'{environment}, {names[rule]}, learning rate {rate:g}',
        folder=folder,
        counter='updates',
        goal=config.updates,
        config=config,
        description=description,
        rule=names[rule],
      )
    )
  return jobs


def validate(jobs: Sequence[Job]) -> None:
  """Checks that the environments and rules of all runs can be loaded.

  Raises:
    ValueError: the name of an environment or of a rule is unknown.
    ImportError: an environment needs a package that is not installed.
    FileNotFoundError: a file of a rule's weights does not exist.
  """
  for environment in dict.fromkeys(job.config.environment for job in jobs):
    environment_registry.validate(environment)
  for config in {job.config.rule: job.config for job in jobs}.values():
    rule_registry.load(config.rule, **config.rule_settings)


def cost(jobs: Sequence[Job]) -> str:
  """Describes the number of runs, their lengths, and how many are over."""
  config = jobs[0].config
  over = sum(job.is_over for job in jobs)
  begun = sum(job.has_begun for job in jobs) - over
  swept = _swept(jobs)
  environments, rules = len(swept['environments']), len(swept['rules'])
  per_run = config.seeds * config.environment_steps
  return (
    f'{len(jobs)} runs: environments {environments} x rules {rules} x learning '
    f'rates {len(jobs) // (environments * rules)}. Each: '
    f'{config.seeds} agents x {config.updates:,} updates = {per_run:,} '
    f'environment steps; in all {per_run * len(jobs):,}. {over} are over, '
    f'{begun} begun.'
  )


def run(
  jobs: Sequence[Job], settings: Mapping[str, Any], workdir: pathlib.Path
) -> list[comparison.Result]:
  """Runs the jobs that are not over, one after another; reads all results.

  A run fails if its losses are not finite: this is recorded in its folder, and
  the other runs continue.

  Args:
    jobs: of `plan`.
    settings: that they were made from.
    workdir: the folder of the sweep.

  Returns:
    One result for each job.

  Raises:
    workdirs.WorkdirError: the folder contains something else, is in use by
      another sweep, or a file of weights has changed since its runs began.
  """
  with workdirs.locked(workdir):
    _claim(workdir, settings, jobs)
    run_jobs(jobs)
    return [read(job) for job in jobs]


def run_jobs(jobs: Sequence[Job]) -> None:
  """Runs the jobs that are not over, one after another; see `run`."""
  for job in jobs_lib.announced(jobs):
    _run_one(job)


def _run_one(job: Job) -> None:
  with contextlib.closing(runner.Evaluation(job.config)) as evaluation:
    try:
      evaluation.run(job.folder, job.description)
    except metrics.NonFiniteError as error:
      # One learning rate that is too high must not end the sweep.
      job.fail(str(error))


def read(job: Job, updates: int | None = None) -> comparison.Result:
  """Reads the result of a job that is over.

  Args:
    job: the run.
    updates: after which agents are scored; None: all of its updates.

  Returns:
    The result; of a job that failed its failure.
  """
  config = job.config
  identity = config.environment, job.rule, config.agent.learning_rate
  if job.failure is not None:
    return comparison.failed(*identity, job.failure)
  path = job.folder / 'metrics.csv'
  updates = config.updates if updates is None else updates
  steps = updates * config.steps_per_update
  return comparison.read_result(path, *identity, steps)


def _claim(
  workdir: pathlib.Path, settings: Mapping[str, Any], jobs: Sequence[Job]
) -> None:
  """Checks that the folder belongs to this sweep, with unchanged rules."""
  for name in ('metrics.csv', 'checkpoints'):
    if (workdir / name).exists():
      raise workdirs.WorkdirError(
        f'{workdir} contains a single run, as it has {name}. Choose another '
        '--workdir for several runs.'
      )
  rules = sources.files_among(job.config.rule for job in jobs)
  swept = _swept(jobs)
  shared = {k: v for k, v in settings.items() if f'{k}s' not in swept}
  workdirs.claim(workdir, {**shared, **swept}, _FREE, rules)


def _swept(jobs: Sequence[Job]) -> dict[str, list[Any]]:
  """Distinct values of the settings that are swept over."""
  values: dict[str, list[Any]] = {
    'environments': [job.config.environment for job in jobs],
    'rules': [job.config.rule for job in jobs],
    'learning_rates': [job.config.agent.learning_rate for job in jobs],
  }
  return {name: list(dict.fromkeys(listed)) for name, listed in values.items()}


def _check_distinct(what: str, values: Sequence[Any]) -> None:
  """Raises ValueError if there are no values, or two share a folder."""
  if not values:
    raise ValueError(f'{what} is empty: name at least one.')
  by_folder = collections.defaultdict(list)
  for value in values:
    by_folder[slug(f'{value}')].append(f'{value}')
  for folder, sharing in by_folder.items():
    if len(sharing) > 1:
      raise ValueError(
        f'{what} has {" and ".join(sharing)}, which would share the folder '
        f'{folder}: leave one out, or give it another name.'
      )


def slug(name: str) -> str:
  """The name of a folder."""
  return re.sub('[^A-Za-z0-9_.]+', '-', name.removesuffix('.npz')).strip('-.')


def labels(rules: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
  """Names in figures and tables: of a file of a run, rule.npz, the run's.

  Of other paths the last part. Where it is taken, or that of several rules, the
  name is the whole path.
  """
  short = [_label(pathlib.PurePath(x.removesuffix('.npz'))) for x in rules]
  return {
    rule: name if [*short, *taken].count(name) == 1 else rule
    for rule, name in zip(rules, short)
  }


def _label(path: pathlib.PurePath) -> str:
  return (path.name == 'rule' and path.parent.name) or path.name
