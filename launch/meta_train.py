r"""Discovers an update rule by training a population of agents.

  disco-rl meta-train --config=quickstart \
    --workdir=runs/quickstart

Every setting of the config is also a flag, such as --config.meta_steps=100.
Repeat the command to resume an interrupted run; a larger meta_steps extends it.
--from=RUN starts from the newest checkpoint of another run, and continues with
the settings of this command.

On many machines, run the same command on each with --distributed, if JAX
recognizes the cluster (SLURM, Open MPI, Kubernetes, TPUs), or with
--num_processes=N --process=I --coordinator=HOST:PORT. The workdir must be on a
shared file system.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import pathlib
import shlex
import sys
from typing import TYPE_CHECKING
from typing import Any

from absl import flags

from configs import meta_training
from disco_rl import config as config_lib
from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from disco_rl.meta_training import config as meta_config

_FROM = common.from_flag()
_DISTRIBUTED = flags.DEFINE_bool(
  'distributed', False, 'Whether several processes run together.'
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of the first process.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'Number of processes.', lower_bound=1
)
_PROCESS = flags.DEFINE_integer(
  'process', None, 'Index of this process, from 0.', lower_bound=0
)


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Builds and runs meta-training."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  import jax

  from disco_rl.meta_training import build
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import distributed
  from disco_rl.runtime import forks
  from disco_rl.runtime import reports
  from disco_rl.runtime import sharding
  from disco_rl.runtime import workdirs

  with in_one_line(ValueError, ImportError, RuntimeError):
    settings = workdirs.with_choices(workdir, settings, common.given())
    _check_start(f'{settings["rule"]}', workdir)
    config = meta_trainer.config_of(settings, common.given())
    settings = meta_trainer.filled(settings, config)
    if _is_distributed() and _FROM.value is not None:
      fail('--from cannot start a run of several processes.')
    description = forks.describe(
      workdir,
      _FROM.value,
      {**config_lib.flatten(config), **settings},
      meta_trainer.KEPT,
      config.meta_steps,
    )
    workdirs.check(
      workdir, description, meta_trainer.FREE, meta_trainer.complete
    )
    sharding.divide_cpu(config.cpu_devices)
    if _is_distributed():
      distributed.connect(*_others())
      if distributed.is_first():
        reports.note(distributed.describe_devices())
    try:
      trainer = meta_trainer.MetaTrainer(config)
    except build.MissingPackagesError as error:
      offer = _without(error.names, settings, config)
      raise ImportError(f'{error}{offer}') from error
  with in_one_line():
    try:
      summary = trainer.run(workdir, description)
    except jax.errors.JaxRuntimeError as error:
      if not distributed.is_distributed():
        raise
      fail(
        'The processes of this run lost their connection; has one of them '
        'ended? The same commands resume from the last checkpoint. '
        f'{error}'
      )
  if distributed.is_first():
    print('\n'.join(_told(workdir, summary, config.held_out.updates)))


def _told(
  workdir: pathlib.Path, summary: Mapping[str, Any], updates: int
) -> Iterator[str]:
  """Summarizes the result of a run in sentences."""
  seconds, compiling = summary['seconds'], summary['compile_seconds']
  yield (
    f'{summary["meta_steps"]:,} meta-steps of {summary["agents"]} agents have '
    f'taken {seconds:.0f} s, of which {compiling:.0f} compiling.'
  )
  for name, value in summary['held_out'].items():
    yield (
      f'New agents that the rule trains for {updates:,} updates earn '
      f'{value:.3g} in {name}.'
    )
  rule = paths.shown(workdir / 'rule.npz')
  if summary['held_out']:
    yield (
      f'The rule is {rule}, as it was after {summary["rule_meta_step"]:,} '
      'meta-steps: held-out agents earned most then. newest_rule.npz is beside '
      'it.'
    )
  else:
    yield f'The rule is {rule}; its folder has more.'


def _without(
  missing: Collection[str],
  settings: Mapping[str, Any],
  config: 'meta_config.MetaTrainingConfig',
) -> str:
  """Suggests the command without the suites that are not available."""
  from disco_rl.environments import suites

  kept, number = [], 0
  given = settings['environments']
  for name in given.split(',') if isinstance(given, str) else given:
    environments = suites.expand(name.strip())
    if not set(environments) & set(missing):
      kept.append(name.strip())
      number += len(environments)
  if not kept:
    return ''
  agents = max(number, config.agents * number // len(config.environments))
  flags_ = [
    f'--config.environments={",".join(kept)}',
    f'--config.agents={agents}',
  ]
  command = shlex.join([*sys.argv[1:], *flags_])
  return f' Without what is missing: disco-rl meta-train {command}'


def _check_start(rule: str, workdir: pathlib.Path) -> None:
  """Raises ValueError if the run would overwrite the rule it starts from."""
  names = ('rule.npz', 'newest_rule.npz', 'initial_rule.npz')
  written = [workdir / name for name in names]
  if pathlib.Path(rule).resolve() in [path.resolve() for path in written]:
    raise ValueError(
      f'rule={rule} is a file that this run writes itself: copy it to another '
      'folder, or choose another --workdir.'
    )


def _is_distributed() -> bool:
  """Returns whether several processes run together."""
  return _DISTRIBUTED.value or _others() != (None, None, None)


def _others() -> tuple[str | None, int | None, int | None]:
  """Returns coordinator, number of processes and index, or None if not set."""
  return _COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS.value


if __name__ == '__main__':
  common.run(main, _is_distributed, meta_training)
