"""How every launcher begins, once its flags are parsed."""

from collections.abc import Sequence
import os

from absl import flags
from absl import logging

from disco_rl.runtime import compilation_cache
from disco_rl.runtime import garbage
from launch.errors import fail


def begin(argv: Sequence[str]) -> None:
  """Prepares this process; ends it if the command line has more than flags.

  Args:
    argv: the name of the program, and what is left of the command line.
  """
  if argv[1:]:
    fail(f'Not understood: {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    # Packages report each of their steps as INFO.
    logging.set_verbosity(logging.WARNING)
  garbage.collect_rarely()
  compilation_cache.leave_loops_rolled()
  # Pictures are drawn without a window. A kernel of Jupyter sets a backend that
  # may not be installed here: matplotlib could not be imported.
  os.environ['MPLBACKEND'] = 'agg'
