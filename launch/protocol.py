r"""Judges rules and baselines by a declared protocol.

  disco-rl protocol --config=protocol \
    --rules=runs/a/rule.npz,runs/b/rule.npz --workdir=runs/protocol

Each rule's settings are chosen on validation tasks and then kept in the tests.
After an interruption, the same command continues with the remaining runs; more
rules or tests add runs. report.html, report.md, summary.json and scores.csv
compare the tests in which all rules have finished; validation.csv has what the
settings were chosen by.
"""

import dataclasses
import pathlib
from typing import TYPE_CHECKING
from typing import Any

from absl import flags

from configs import protocol as configs
from disco_rl import config as config_lib
from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from disco_rl.evaluation import planned_runs
  from disco_rl.evaluation import protocol as protocol_lib

_RULES = flags.DEFINE_list(
  'rules',
  [],
  'Names or files of the rules to judge, separated by commas.',
)
_TASKS = flags.DEFINE_list(
  'tasks',
  [],
  'Tests, or families or suites of tests, to run now; by default all.',
)
_PROCESSES = common.processes_flag()
_SLURM = common.slurm_flag()

# Settings that may change when a protocol is resumed, because they add runs; so
# may those that can change in any run.
_FREE = ('rules', 'grids', 'growth', 'recipes', 'test_tasks', 'training_tasks')


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Makes the remaining runs, then reports on all finished runs."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.evaluation import protocol as protocol_lib
  from disco_rl.evaluation import protocol_report
  from disco_rl.runtime import workdirs
  from disco_rl.training import config as training_config
  from disco_rl.update_rules import sources
  from launch import scheduler

  if not _RULES.value:
    fail('--rules is empty: name the rules to judge, or their files.')

  def finish(runs: 'list[planned_runs.Run]') -> None:
    scheduler.run(runs, _PROCESSES.value, workdir, _SLURM.value)
    if left := [run.name for run in runs if not run.is_over]:
      fail(
        f'{len(left)} of {len(runs)} runs are not over: {"; ".join(left)}. The '
        'lines above say why. The same command tries again.'
      )

  with in_one_line(ValueError, ImportError):
    plan = _plan(settings, workdir)
    tasks = plan.protocol.select(_TASKS.value)
    protocol_lib.validate(plan)
    with workdirs.locked(workdir):
      rules = sources.files_among(_RULES.value)
      free = (*_FREE, *training_config.FREE)
      workdirs.claim(workdir, _description(plan), free, rules)
      runs: list[planned_runs.Run] = []
      # As long as finished runs ask for more.
      while runs != (runs := plan.validation(tasks)):
        finish(runs)
      choices = plan.choose(tasks)
      finish(plan.tests(choices, tasks))
      protocol_report.write(plan, choices)
  print(paths.shown(workdir / 'report.md'))


def _plan(
  settings: dict[str, Any], workdir: pathlib.Path
) -> 'protocol_lib.Plan':
  """Returns the runs that the flags describe."""
  from disco_rl.evaluation import contenders
  from disco_rl.evaluation import protocol as protocol_lib

  protocol = config_lib.build(protocol_lib.Protocol, settings)
  names = {field.name for field in dataclasses.fields(protocol)}
  return protocol_lib.Plan(
    protocol=protocol,
    settings={k: v for k, v in settings.items() if k not in names},
    contenders=contenders.make(
      _RULES.value, protocol.grids, protocol.candidates
    ),
    workdir=workdir,
  )


def _description(plan: 'protocol_lib.Plan') -> dict[str, Any]:
  """Returns the contents of config.json: declarations and shared settings."""
  declared = dataclasses.asdict(plan.protocol)
  return {**plan.settings, **declared, 'rules': list(_RULES.value)}


if __name__ == '__main__':
  common.run(main, base=configs)
