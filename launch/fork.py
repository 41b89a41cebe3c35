"""The flag --from, for runs that start from another run's state."""

from collections.abc import Callable
from collections.abc import Mapping
import pathlib
from typing import Any

from launch.common import define_path
from launch.errors import fail

FROM = define_path(
  'from', 'Folder of a run from whose newest checkpoint this one starts.'
)


def describe(
  workdir: pathlib.Path,
  settings: dict[str, Any],
  kept: Callable[[Mapping[str, Any]], Any],
  last_step: int,
) -> dict[str, Any]:
  """Returns the settings of a run, including the origin of a fork.

  Args:
    workdir: The folder of the run, which may already exist.
    settings: The settings of the run.
    kept: The argument `shapes` of `forks.check`.
    last_step: The final number of updates or meta-steps of the run.

  Raises:
    files.WorkdirError: The run cannot be forked with these settings.
  """
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.runtime import forks

  origin = forks.origin(workdir, FROM.value)
  if origin is None:
    return settings
  if not (workdir / 'checkpoints').exists():
    forks.check(origin, settings, kept)
    if last_step <= origin['step']:
      fail(
        f'{origin["workdir"]} has made {origin["step"]} of {last_step} steps: '
        'raise --config.updates or --config.meta_steps.'
      )
  return {**settings, forks.KEY: origin}
