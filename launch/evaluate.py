r"""Trains agents with a fixed rule, several seeds side by side.

  disco-rl evaluate --config=catch \
    --config.rule=disco103 --workdir=runs/catch

Any setting of the config can be given as a flag, --config.learning_rate=1e-3.
The same command again resumes an interrupted run.

--from=RUN begins where another run is, with its newest checkpoint, and goes on
with the settings of this command.

Lists (--config.environments, --config.rules, --config.learning_rates) make one
run of each combination, in a folder of its own, and a report of all runs. The
same command again runs what is missing.
"""

import pathlib
import sys
from typing import Any

from configs import evaluate
from disco_rl import config as config_lib
from launch import common
from launch import fork
from launch import to_records
from launch.errors import fail
from launch.errors import in_one_line


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Runs one training, or a sweep if the settings hold lists."""
  if any(settings.get(name) for name in to_records.SWEPT):
    fork.refuse('a sweep')
    _run_all(settings, workdir)
  else:
    _run_one(to_records.of_one_run(settings), workdir)


def _run_one(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.evaluation import runner
  from disco_rl.evaluation import stored
  from disco_rl.runtime import workdirs

  with in_one_line(ValueError, ImportError):
    settings = workdirs.with_choices(workdir, settings)
    config = to_records.evaluation(settings)
    description = fork.describe(
      workdir, config_lib.flatten(config), stored.kept_by_forks, config.updates
    )
    workdirs.check(workdir, description, runner.FREE)
    evaluation = runner.Evaluation(config)
  with in_one_line():
    evaluation.run(workdir, description)
  print((workdir / 'summary.json').read_text(), end='')


def _run_all(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  from disco_rl.evaluation import report
  from disco_rl.evaluation import sweep

  with in_one_line(ValueError, ImportError):
    jobs = sweep.plan(
      settings,
      **to_records.swept(settings),
      to_config=to_records.evaluation,
      workdir=workdir,
    )
    sweep.validate(jobs)
    print(sweep.cost(jobs), file=sys.stderr)
    results = sweep.run(jobs, settings, workdir)
  config = jobs[0].config
  setup = report.Setup(config.seeds, config.updates, config.environment_steps)
  report.write(results, setup, workdir)
  print(workdir / 'report.md')
  failed = [job for job in jobs if job.failure is not None]
  if failed:
    fail(
      f'{len(failed)} of {len(jobs)} runs failed and are left out of the '
      f'comparison: {"; ".join(job.name for job in failed)}. The report says '
      'why. Delete the folder of a run to repeat it.'
    )


if __name__ == '__main__':
  common.run(main, base=evaluate)
