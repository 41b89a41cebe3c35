r"""Judges rules by a declared protocol, beside baselines; see docs/protocol.md.

  disco-rl protocol --config=protocol \
    --rules=runs/a/rule.npz,runs/b/rule.npz --workdir=runs/protocol

Each rule's settings are chosen by validation tasks, then kept in the tests.
The same command goes on with what is left, at whatever moment it was ended;
more rules or tests are added to what there is. report.html, report.md,
summary.json and scores.csv compare the tests in which all have finished.
"""

import dataclasses
import pathlib
import sys
from typing import Any

from absl import flags

from configs import protocol as configs
from launch import common
from launch import to_records
from launch.at_once import AT_ONCE
from launch.errors import fail
from launch.errors import in_one_line

_RULES = flags.DEFINE_list(
  'rules',
  [],
  'Names or files of the rules that are judged, with commas between.',
)
_TASKS = flags.DEFINE_list(
  'tasks',
  [],
  'Tests, and families and suites of tests, that are run now; none: all.',
)
_PART = flags.DEFINE_list(
  'part', [], 'Of the launcher itself: I,N are every Nth of the runs from I on.'
)

# Settings that a resumed protocol may change, beside those of any run: they add
# runs.
_FREE = ('rules', 'grids', 'test_tasks', 'training_tasks')


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Runs what is left, then reports on all that has finished."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.evaluation import protocol as protocol_lib
  from disco_rl.evaluation import protocol_report
  from disco_rl.evaluation import runner
  from disco_rl.runtime import workdirs
  from disco_rl.update_rules import sources

  if not _RULES.value:
    fail('--rules is empty: name the rules that are judged, or their files.')
  with in_one_line(ValueError, ImportError):
    plan = _plan(settings, workdir)
    tasks = plan.protocol.select(_TASKS.value)
    protocol_lib.validate(plan)
    if _PART.value:
      _run_part(plan, tasks)
      return
    with workdirs.locked(workdir):
      rules = sources.files_among(_RULES.value)
      free = (*_FREE, *runner.FREE)
      workdirs.claim(workdir, _description(plan), free, rules)
      _run(plan.validation(tasks), workdir)
      choices = plan.choose(tasks)
      _run(plan.tests(choices, tasks), workdir)
      protocol_report.write(plan, choices)
  print(workdir / 'report.md')


def _plan(settings: dict[str, Any], workdir: pathlib.Path) -> Any:
  """The runs that the flags describe."""
  from disco_rl import config as config_lib
  from disco_rl.evaluation import protocol as protocol_lib

  protocol = config_lib.build(protocol_lib.Protocol, settings)
  names = {field.name for field in dataclasses.fields(protocol)}
  shared = {k: v for k, v in settings.items() if k not in names}
  return protocol_lib.Plan(
    protocol=protocol,
    settings=to_records.of_one_run(shared),
    contenders=protocol_lib.contenders(_RULES.value, protocol.grids),
    to_config=to_records.evaluation,
    workdir=workdir,
  )


def _description(plan: Any) -> dict[str, Any]:
  """What config.json holds: the declarations, and what all runs share."""
  declared = dataclasses.asdict(plan.protocol)
  return {**plan.settings, **declared, 'rules': list(_RULES.value)}


def _run(jobs: list[Any], workdir: pathlib.Path) -> None:
  """Runs the jobs that are not over, in this process or in several."""
  from disco_rl.evaluation import sweep
  from launch import processes

  number = min(AT_ONCE.value, sum(not job.is_over for job in jobs))
  if number <= 1:
    sweep.run_jobs(jobs)
    return
  failures = processes.run_all(
    [
      processes.Command(
        name=f'process {i + 1} of {number}, which prints to processes/{i}.log',
        folder=workdir / 'processes' / f'{i}',
        counter='updates',
        goal=1,
        arguments=(
          *('-m', 'disco_rl', 'protocol', *sys.argv[1:]),
          f'--part={i},{number}',
        ),
      )
      for i in range(number)
    ],
    number,
  )
  if failures:
    fail('; '.join(f'{folder}: {text}' for folder, text in failures.items()))


def _run_part(plan: Any, tasks: tuple[str, ...]) -> None:
  """Runs every Nth job of a stage, validation or the tests, if it is not over.

  Of all of its jobs, so that no two processes count differently while runs end.
  The process that started this one lets no stage begin before the last is over.
  """
  from disco_rl.evaluation import sweep

  first, step = map(int, _PART.value)
  jobs = plan.validation(tasks)
  if all(job.is_over for job in jobs):
    jobs = plan.tests(plan.choose(tasks), tasks)
  sweep.run_jobs(jobs[first::step])


if __name__ == '__main__':
  common.run(main, base=configs)
