"""What all launchers share: their flags."""

from collections.abc import Callable
import pathlib
import re
from typing import Any

from absl import app
from absl import flags
from absl import logging
import ml_collections
from ml_collections import config_flags

from disco_rl.runtime import config_checks
from launch.errors import fail

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, a colon, and what to start from.'
)
WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'Folder of the run; resumed if it holds one.',
  required=True,
)
flags.mark_flag_as_required('config')

_SEE_CONFIG = 'The file that --config names lists all settings.'


def run(main: Callable[[dict[str, Any], pathlib.Path], None]) -> None:
  """Parses the flags and calls main(settings, workdir)."""

  def with_flags(argv: list[str]) -> None:
    del argv
    if not flags.FLAGS['verbosity'].present:
      # Orbax reports each of its steps as INFO.
      logging.set_verbosity(logging.WARNING)
    main(CONFIG.value.to_dict(), pathlib.Path(WORKDIR.value))

  app.run(with_flags, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
  """Parses as absl does, but says in one line what is wrong."""
  replay_ratio = _take(argv, '--config.replay_ratio')
  try:
    rest = flags.FLAGS(argv)
    CONFIG.value.to_dict()  # A missing file shows only when it is used.
  except (flags.Error, OSError) as error:
    # Of an error in the config's file the message holds the whole traceback.
    fail(re.sub(r'^\w+Error: ', '', str(error).strip().splitlines()[-1]))
  except (AttributeError, KeyError) as error:
    # So answers ml_collections if the config has no such setting.
    answer = error.args[0]
    name, *nearest = str(getattr(answer, 'args', [answer])[0]).splitlines()
    fail(f'Unknown setting {name}. {" ".join(nearest) or _SEE_CONFIG}')
  except (IndexError, SyntaxError, TypeError, ValueError) as error:
    # So does it answer what cannot be the name of a setting.
    fail(f'A flag names no setting: {error}. {_SEE_CONFIG}')
  if rest[1:]:
    fail(f'Not understood: {" ".join(rest[1:])}')
  if replay_ratio is not None:
    _set_replay_ratio(replay_ratio, CONFIG.value)
  return rest


def _take(argv: list[str], flag: str) -> str | None:
  """Removes a flag from the arguments; returns its last value, if any."""
  value = None
  for argument in argv[1:]:
    if argument.startswith(f'{flag}='):
      value = argument.removeprefix(f'{flag}=')
      argv.remove(argument)
  return value


def _set_replay_ratio(text: str, config: ml_collections.ConfigDict) -> None:
  """Sets the number of environments by the flag that older versions had."""
  try:
    old = {'batch_size': config.batch_size, 'replay_ratio': float(text)}
    config.num_environments = config_checks.translate(old)['num_environments']
  except ValueError as error:
    fail(error)
