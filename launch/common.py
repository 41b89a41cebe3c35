"""Flags that the launchers share."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import pathlib
import re
import signal
from types import ModuleType
from typing import Any

from absl import app
from absl import flags

from launch import compilation_cache
from launch import help
from launch import modules
from launch import orphans
from launch import start
from launch import streams
from launch.config import CONFIG
from launch.config import define as define_config
from launch.config import prefer
from launch.config import settings
from launch.errors import fail
from launch.workdir import WORKDIR

# A folder that holds a run is resumed.
flags.mark_flags_as_required(['config', 'workdir'])

_SEE_CONFIG = 'The file that --config names lists all settings.'


def run(
  main: Callable[[dict[str, Any], pathlib.Path], None],
  is_distributed: Callable[[], bool] = lambda: False,
  base: ModuleType | None = None,
) -> None:
  """Parses the flags and calls main(settings, workdir).

  Args:
    main: of the launcher.
    is_distributed: whether, by its flags, this process is one of several.
    base: the file in configs/ that describes the settings, for --help.
  """

  def with_flags(argv: list[str]) -> None:
    start.begin(argv)
    if not flags.FLAGS['verbosity'].present:
      streams.hide_tracebacks()
    # Processes that find a program would not answer those that compile it.
    compilation_cache.set_up(by_default=not is_distributed())
    modules.import_modules(WORKDIR.value)
    assert WORKDIR.value is not None  # It is required.
    main(settings(), pathlib.Path(WORKDIR.value))

  streams.protect()
  orphans.watch()
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # As SIGTERM does. KeyboardInterrupt can get lost in imports and callbacks.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
  app.run(with_flags, flags_parser=functools.partial(parse_flags, base=base))


def settings_of(config: str, overrides: Sequence[str]) -> dict[str, Any]:
  """The settings of another command.

  Args:
    config: its --config.
    overrides: its flags --config.NAME=VALUE.

  Returns:
    The settings.
  """
  argv = ['launcher', f'--config={config}', *overrides]
  parsed = flags.FlagValues()
  define_config(flag_values=parsed, sys_argv=argv)
  with _failing_in_one_line():
    parsed(argv)
    return settings(parsed)


def parse_flags(argv: list[str], base: ModuleType | None = None) -> list[str]:
  """Parses flags as absl does, but reports errors in one line.

  Args:
    argv: the command line.
    base: the file in configs/ that describes the settings, for --help.

  Returns:
    The name of the program.
  """
  prefer(base)
  if help.is_asked(argv):
    help.show(base, _given_settings(argv, base))
  with _failing_in_one_line():
    rest = flags.FLAGS(argv)
    CONFIG.value.to_dict()  # A missing file raises only when it is used.
  if rest[1:]:
    fail(f'Not understood: {" ".join(rest[1:])}')
  return rest


@contextlib.contextmanager
def _failing_in_one_line() -> Iterator[None]:
  """Ends the program with one line where flags or the config are wrong."""
  try:
    yield
  except (flags.Error, OSError) as error:
    # If the config's file raises, the message holds the whole traceback.
    fail(re.sub(r'^\w+Error: ', '', str(error).strip().splitlines()[-1]))
  except (AttributeError, KeyError) as error:
    # ml_collections raises these if the config has no such setting.
    answer = error.args[0]
    name, *nearest = str(getattr(answer, 'args', [answer])[0]).splitlines()
    fail(f'Unknown setting {name}. {" ".join(nearest) or _SEE_CONFIG}')
  except (IndexError, SyntaxError, TypeError, ValueError) as error:
    # It raises these for text that cannot be the name of a setting.
    fail(f'A flag names no setting: {error}. {_SEE_CONFIG}')


def _given_settings(argv: list[str], base: ModuleType | None) -> dict[str, Any]:
  """The settings of a command with --help; {} if it has no --config."""
  names = [argument.lstrip('-').partition('=')[0] for argument in argv[1:]]
  if 'config' not in names:
    return {}
  # ml_collections reads the command line as well.
  argv[:] = [x for x in argv if not help.is_asked(['', x])]
  parse_flags([*argv, '--workdir=.'], base)
  return CONFIG.value.to_dict()
