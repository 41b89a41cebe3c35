"""Many runs in one folder: environments x rules x learning rates."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import pathlib
import re
import sys
import time
from typing import Any

from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import comparison
from disco_rl.evaluation import runner
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import weights

# What a command may change in a folder that it comes back to.
_FREE = (
  'environments',
  'rules',
  'learning_rates',
  'updates',
  'log_every',
  'checkpoint_every',
)


@dataclasses.dataclass(frozen=True)
class Job:
  """One run of a sweep.

  Attributes:
    config: what is trained.
    description: its settings as the user gave them, for its config.json.
    rule: name of its rule in figures and tables.
    folder: of the run.
  """

  config: runner.EvaluationConfig
  description: Mapping[str, Any]
  rule: str
  folder: pathlib.Path

  @property
  def name(self) -> str:
    """For people."""
    rate = self.config.agent.learning_rate
    return f'{self.config.environment}, {self.rule}, learning rate {rate:g}'

  @property
  def updates_done(self) -> int:
    """How many updates its finished run has; 0 if it has none."""
    return _read_entry(self.folder / 'summary.json', 'updates', int) or 0

  @property
  def failure(self) -> str | None:
    """Why it ended early; None if it did not."""
    return _read_entry(self.folder / 'failure.json', 'reason', str)

  @property
  def is_over(self) -> bool:
    """Whether nothing is left to do."""
    return self.failure is not None or self.updates_done >= self.config.updates


def plan(
  settings: Mapping[str, Any],
  environments: Sequence[str],
  rules: Sequence[str],
  learning_rates: Sequence[float],
  to_config: Callable[[Mapping[str, Any]], runner.EvaluationConfig],
  workdir: pathlib.Path,
) -> list[Job]:
  """Lists the runs; environments change slowest.

  Args:
    settings: that all runs share.
    environments: names.
    rules: names or paths.
    learning_rates: of the agents.
    to_config: from the settings of one run to its config.
    workdir: the folder of the sweep; ENVIRONMENT/RULE/LEARNING_RATE in it, with
      - for /, is the folder of a run.

  Returns:
    The runs.

  Raises:
    ValueError: a list is empty or holds something twice, two names would share
      a folder, or a setting is not valid.
  """
  for what, values in (
    ('environments', environments),
    ('rules', rules),
    ('learning_rates', learning_rates),
  ):
    _check_distinct(what, values)
  labels = _labels(rules)
  jobs = []
  for environment, rule, rate in itertools.product(
    environments, rules, learning_rates
  ):
    description = {
      **settings,
      'environment': environment,
      'rule': rule,
      'learning_rate': rate,
    }
    folder = workdir.joinpath(*map(_slug, (environment, rule, f'{rate}')))
    jobs.append(Job(to_config(description), description, labels[rule], folder))
  return jobs


def validate(jobs: Sequence[Job]) -> None:
  """Looks for what would end a run before it begins, in all of them.

  Raises:
    ValueError: the name of an environment or of a rule is not known.
    ImportError: an environment needs a package that is not installed.
    FileNotFoundError: there is no file of weights at a path.
  """
  for environment in dict.fromkeys(job.config.environment for job in jobs):
    environment_registry.validate(environment)
  for config in {job.config.rule: job.config for job in jobs}.values():
    rule_registry.load(config.rule, **config.rule_settings)


def cost(jobs: Sequence[Job]) -> str:
  """Says how many runs there are, how long, and how many are over."""
  config = jobs[0].config
  over = sum(job.is_over for job in jobs)
  begun = sum((job.folder / 'config.json').exists() for job in jobs) - over
  num_environments, num_rules, num_rates = (
    len({key(job) for job in jobs})
    for key in (
      lambda job: job.config.environment,
      lambda job: job.config.rule,
      lambda job: job.config.agent.learning_rate,
    )
  )
  per_run = config.seeds * config.environment_steps
  return (
    f'{len(jobs)} runs: environments {num_environments} x rules {num_rules} x '
    f'learning rates {num_rates}. Each: {config.seeds} agents x '
    f'{config.updates:,} updates = {per_run:,} environment steps; in all '
    f'{per_run * len(jobs):,}. {over} are over, {begun} begun.'
  )


def run(jobs: Sequence[Job], workdir: pathlib.Path) -> list[comparison.Result]:
  """Runs what is not over yet, one after the other, and reads all results.

  A run whose losses are no longer finite has failed: this is noted in its
  folder, and the others go on.

  Args:
    jobs: of `plan`.
    workdir: the folder of the sweep.

  Returns:
    One result for each job.

  Raises:
    workdirs.WorkdirError: a folder holds something else, another sweep is at
      work in it, or a file of weights has changed since runs in it began.
  """
  with workdirs.locked(workdir):
    _claim(workdir, jobs)
    return _run_all(jobs)


def _run_all(jobs: Sequence[Job]) -> list[comparison.Result]:
  """See `run`; in a folder that is this process's."""
  todo = [job for job in jobs if not job.is_over]
  start = time.perf_counter()
  for i, job in enumerate(todo):
    elapsed = time.perf_counter() - start
    # A bar would be torn apart by those of the runs.
    print(
      f'Run {len(jobs) - len(todo) + i + 1} of {len(jobs)}'
      + (f', about {_hours(elapsed / i * (len(todo) - i))} left' if i else '')
      + f': {job.name}',
      file=sys.stderr,
      flush=True,
    )
    _run_one(job)
  return [_read(job) for job in jobs]


def _hours(seconds: float) -> str:
  """As hours, minutes and seconds."""
  return str(datetime.timedelta(seconds=round(seconds)))


def _run_one(job: Job) -> None:
  with contextlib.closing(runner.Evaluation(job.config)) as evaluation:
    try:
      evaluation.run(job.folder, job.description)
    except metrics.NonFiniteError as error:
      # Else a learning rate that is too high would end the others, too.
      metrics.write_json(job.folder / 'failure.json', {'reason': str(error)})


def _read(job: Job) -> comparison.Result:
  config = job.config
  identity = config.environment, job.rule, config.agent.learning_rate
  if job.failure is not None:
    return comparison.failed(*identity, job.failure)
  path = job.folder / 'metrics.csv'
  return comparison.read_result(path, *identity, config.environment_steps)


def _read_entry(path: pathlib.Path, key: str, kind: type) -> Any:
  """An entry of a JSON file; None where there is no file."""
  if not path.exists():
    return None
  value = metrics.read_json(path).get(key)
  if not isinstance(value, kind):
    raise workdirs.WorkdirError(
      f'{path} has {key}={value!r}, no {kind.__name__}: likely damaged, or not '
      'written by a run. Delete the folder of the run to repeat it.'
    )
  return value


def _claim(workdir: pathlib.Path, jobs: Sequence[Job]) -> None:
  """Checks that the folder is this sweep's, and that its rules are the same."""
  for name in ('metrics.csv', 'checkpoints'):
    if (workdir / name).exists():
      raise workdirs.WorkdirError(
        f'{workdir} holds a single run, as it has {name}. Choose another '
        '--workdir for several runs.'
      )
  path = workdir / 'rules.json'
  earlier = metrics.read_json(path) if path.exists() else {}
  now = {
    name: hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest()
    for name in dict.fromkeys(job.config.rule for job in jobs)
    if weights.is_path(name)
  }
  changed = [name for name in now if earlier.get(name, now[name]) != now[name]]
  if changed:
    raise workdirs.WorkdirError(
      f'{", ".join(changed)} changed since runs in {workdir} began, so that '
      'they are of another rule. Choose another --workdir, or bring back the '
      'file.'
    )
  workdirs.claim(workdir, _description(jobs), _FREE)
  metrics.write_json(path, {**earlier, **now})


def _description(jobs: Sequence[Job]) -> dict[str, Any]:
  """The settings of all runs, with lists of what tells them apart."""
  description = dict(jobs[0].description)
  for name, values in (
    ('environment', [job.config.environment for job in jobs]),
    ('rule', [job.config.rule for job in jobs]),
    ('learning_rate', [job.config.agent.learning_rate for job in jobs]),
  ):
    del description[name]
    description[f'{name}s'] = list(dict.fromkeys(values))
  return description


def _check_distinct(what: str, values: Sequence[Any]) -> None:
  """Raises ValueError if there are none, or equals among them."""
  if not values:
    raise ValueError(f'{what} is empty: name at least one.')
  by_folder = collections.defaultdict(list)
  for value in values:
    by_folder[_slug(f'{value}')].append(f'{value}')
  for folder, sharing in by_folder.items():
    if len(sharing) > 1:
      raise ValueError(
        f'{what} has {" and ".join(sharing)}, which would share the folder '
        f'{folder}: leave one out, or give it another name.'
      )


def _slug(name: str) -> str:
  """A name as that of a folder."""
  return re.sub('[^A-Za-z0-9_.]+', '-', name.removesuffix('.npz')).strip('-.')


def _labels(rules: Sequence[str]) -> dict[str, str]:
  """Rules as they are shown: paths by their last part where that will do."""
  short = [pathlib.PurePath(rule.removesuffix('.npz')).name for rule in rules]
  return {
    rule: name if short.count(name) == 1 else rule
    for rule, name in zip(rules, short)
  }
