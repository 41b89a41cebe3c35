r"""Compares variants of the method of discovery; see configs/ablations.py.

  disco-rl ablate --config=ablations \
    --variants=full,no_q,no_y_and_z --seeds=3 --workdir=runs/ablations

Each variant is a name after the colon of --config. All are discovered
with each of the seeds, --processes of them at a time, and report.html and
report.md compare the returns of new agents in environments outside the
population: curves, and interquartile means with bootstrapped intervals. The
same command continues with what is left. `disco-rl sweep`, which does it, says
more.
"""

from configs import meta_training
from launch import common
from launch import sweep

if __name__ == '__main__':
  common.run(sweep.main, base=meta_training)
