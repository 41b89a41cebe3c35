r"""Trains agents with a fixed rule, several seeds in parallel.

  disco-rl train --config=catch \
    --config.rule=disco103 --config.steps=100_000 --workdir=runs/catch_disco103

Every setting of the config is also a flag, such as --config.learning_rate=1e-3.
--config.steps counts environment steps of each agent; --config.updates counts
its updates instead.
Repeat the command to resume an interrupted run. `disco-rl sweep` makes many
runs, for example with several environments and rules, and writes a report.

--from=RUN starts from the newest checkpoint of another run, and continues with
the settings of this command.
"""

import pathlib
from typing import Any

from configs import evaluate
from disco_rl import config as config_lib
from launch import common
from launch.errors import in_one_line

_FROM = common.from_flag()


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Trains, and prints the summary."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.runtime import forks
  from disco_rl.runtime import workdirs
  from disco_rl.training import config as training_config
  from disco_rl.training import loop
  from disco_rl.training import runner

  with in_one_line(ValueError, ImportError):
    settings = workdirs.with_choices(workdir, settings, common.given())
    config, rule = training_config.resolve(settings)
    description = forks.describe(
      workdir,
      _FROM.value,
      config_lib.flatten(config),
      training_config.KEPT,
      config.updates,
    )
    workdirs.check(
      workdir, description, training_config.FREE, training_config.complete
    )
    _check_whole_rollouts(
      forks.first_step(description) or 0, config.agent.updates_per_rollout
    )
    if steps := config_lib.build(training_config.Budget, settings).steps:
      made = config.environment_steps
      loop.report_rounding('environment steps', steps, made)
    run = runner.TrainingRun(config, rule)
  with in_one_line():
    run.run(workdir, description)
  print((workdir / 'summary.json').read_text(), end='')


def _check_whole_rollouts(first: int, number: int) -> None:
  """Raises ValueError if a fork would begin amid the updates of a rollout.

  Args:
    first: The updates that its source has made.
    number: Its `updates_per_rollout`.
  """
  if first % number:
    raise ValueError(
      f'{_FROM.value} has made {first} updates, no multiple of '
      f'updates_per_rollout={number}: choose a divisor of {first}.'
    )


if __name__ == '__main__':
  common.run(main, base=evaluate)
