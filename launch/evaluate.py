"""Trains agents with a fixed rule, several seeds side by side.

  python -m launch.evaluate --config=configs/evaluate.py:catch \
    --config.rule=disco103 --workdir=runs/catch

Any setting of the config can be given as a flag, --config.learning_rate=1e-3.
The same command again resumes an interrupted run.
"""

import pathlib
from typing import Any

from launch import common
from launch import to_records
from launch.errors import fail


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Builds and runs."""
  # Here, not above: a mistyped flag should not wait for JAX to load.
  from disco_rl import metrics
  from disco_rl import workdirs
  from disco_rl.evaluation import runner

  try:
    evaluation = runner.Evaluation(to_records.evaluation(settings))
  except (ValueError, OSError, ImportError) as error:
    fail(error)
  try:
    evaluation.run(workdir, settings)
  except (workdirs.WorkdirError, metrics.NonFiniteError, OSError) as error:
    fail(error)
  print((workdir / 'summary.json').read_text(), end='')


if __name__ == '__main__':
  common.run(main)
