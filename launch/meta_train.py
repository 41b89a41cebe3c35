"""Discovers an update rule from the lives of a population of agents.

  python -m launch.meta_train --config=configs/quickstart.py \
    --workdir=runs/quickstart

Any setting of the config can be given as a flag, --config.meta_steps=100. The
same command again resumes an interrupted run; with more meta_steps it goes on.
"""

import pathlib
from typing import Any

from launch import common
from launch import to_records
from launch.errors import fail
from launch.errors import of_runs


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Builds and runs."""
  # Here, not above: a mistyped flag should not wait for JAX to load.
  from disco_rl.meta_training import trainer

  try:
    meta_training = trainer.MetaTraining(to_records.meta_training(settings))
  except (ValueError, OSError, ImportError) as error:
    fail(error)
  try:
    meta_training.run(workdir, settings)
  except of_runs() as error:
    fail(error)
  print((workdir / 'summary.json').read_text(), end='')


if __name__ == '__main__':
  common.run(main)
