"""Times an agent's update and its whole life on Catch.

  python -m benchmarks.learner --json=benchmark.json

Catch 8x8 with the settings of configs/evaluate.py:catch: 64 trajectories of 29
observations, the published rule. Times drift on shared machines, so each is
printed beside the rate of a matrix product that was measured next to it, and
as it would be at 470 GFLOP/s, where the published harness takes 0.166 s for an
update and about 185 s for the run.
"""

from collections.abc import Callable
import json
import time
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from configs import evaluate as evaluate_config
from disco_rl import learner
from disco_rl import types
from disco_rl.evaluation import drivers
from disco_rl.evaluation import runner
from launch import evaluate

_JSON = flags.DEFINE_string('json', None, 'File to write the table to.')
_RULE = flags.DEFINE_string('rule', 'disco103', 'See configs/evaluate.py.')
_SEEDS = flags.DEFINE_integer('seeds', 1, 'Agents side by side in the run.')
_UPDATES = flags.DEFINE_integer('updates', 1000, 'Of the run; 0 leaves it out.')
_REPEATS = flags.DEFINE_integer('repeats', 10, 'Of each timing; best counts.')

REFERENCE_GFLOPS = 470.0
HARNESS_UPDATE_SECONDS = 0.166
HARNESS_RUN_SECONDS = 185.0


def main(argv: list[str]) -> None:
  """Prints the table and writes it where asked."""
  del argv
  rows = update_rows()
  if _UPDATES.value:
    rows += run_rows()
  width = max(len(row['name']) for row in rows)
  for row in rows:
    print(f'{row["name"]:{width}}  {row["value"]:12.4g} {row["unit"]}')
  if _JSON.value:
    with open(_JSON.value, 'w', encoding='utf-8') as file:
      json.dump(rows, file, indent=2)
