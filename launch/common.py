"""Flags and startup code that launchers share."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import pathlib
import re
import signal
import sys
import types
from types import ModuleType
from typing import Any

from absl import app
from absl import flags
from absl import logging
import ml_collections
from ml_collections import config_flags

from disco_rl import paths as paths_lib
from disco_rl.runtime import compilation_cache
from launch import config_files
from launch import help
from launch.errors import fail
from launch.errors import hide_tracebacks
from launch.errors import in_one_line

IMPORT = flags.DEFINE_list(
  'import',
  [],
  'Modules that register your own rules, environments, torsos or loggers by '
  'name. Repeat it in each command on the run.',
)
# Flags, besides --config, whose values name environments.
_OF_ENVIRONMENTS = ('environment', 'play_in', 'suite', 'grid', 'tasks')
_MODULE = re.compile(r'^\s*gymnasium/(\w[\w.]*):', re.MULTILINE)
_SEE_HELP = (
  'The --help of disco-rl train, meta-train or protocol lists all settings.'
)


class _PathParser(flags.ArgumentParser[str]):
  """Makes paths absolute, also for ~, which shells leave after an equals sign.

  Environments may change the working directory.
  """

  def __init__(self, *words: str):
    """Makes a parser that leaves these words as they are."""
    self._words = words

  def parse(self, argument: str) -> str:
    """Returns the path; raises the errors of `paths.local`."""
    return argument if argument in self._words else paths_lib.local(argument)


def define_path(
  name: str, meaning: str, *words: str
) -> flags.FlagHolder[str | None]:
  """Defines a flag whose value is a path, one of some words, or None."""
  return flags.DEFINE(_PathParser(*words), name, None, meaning)


# Flags that only some launchers have; each is defined on first use.


@functools.cache
def config_flag() -> Any:
  """Returns the flag that selects a config."""
  return config_files.define()


@functools.cache
def workdir_flag() -> flags.FlagHolder[str | None]:
  """Returns the flag that names the folder of a run."""
  return define_path('workdir', 'Folder of the run.')


@functools.cache
def from_flag() -> flags.FlagHolder[str | None]:
  """Returns the flag that names the run to fork from."""
  return define_path(
    'from', 'Folder of a run from whose newest checkpoint this one starts.'
  )


@functools.cache
def json_flag() -> flags.FlagHolder[bool]:
  """Returns the flag that selects the output format."""
  return flags.DEFINE_bool('json', False, 'Prints JSON instead of a table.')


@functools.cache
def processes_flag() -> flags.FlagHolder[int]:
  """Returns the flag with the number of concurrent runs."""
  return flags.DEFINE_integer(
    'processes', 1, 'Number of concurrent runs.', lower_bound=1
  )


@functools.cache
def slurm_flag() -> flags.FlagHolder[list[str]]:
  """Returns the flag that submits runs as SLURM jobs."""
  return flags.DEFINE_list(
    'slurm',
    [],
    'Submits the runs as an array of SLURM jobs, --processes at a time, with '
    'parameters of submitit such as timeout_min=600,slurm_partition=gpu.',
  )


@functools.cache
def cache_flag() -> flags.FlagHolder[Any]:
  """Returns the flag that chooses the cache of compiled programs."""
  return define_path(
    'compilation_cache',
    "Folder where compiled programs are kept for later runs, or 'off'. "
    'Default: that of JAX_COMPILATION_CACHE_DIR, or else one in the '
    "user's cache.",
    'off',
  )


# Launchers that make runs from a config.


def run(
  main: Callable[[dict[str, Any], pathlib.Path], None],
  is_distributed: Callable[[], bool] = lambda: False,
  base: ModuleType | None = None,
) -> None:
  """Parses the flags and calls main(settings, workdir).

  Args:
    main: The launcher's function.
    is_distributed: Returns whether the flags make this process one of several.
    base: The file in configs/ that describes the settings, for --help.
  """
  config_flag(), workdir_flag(), cache_flag()
  # If the folder contains a run, it is resumed.
  flags.mark_flags_as_required(['config', 'workdir'])

  def with_flags(argv: list[str]) -> None:
    workdir = workdir_flag().value
    assert workdir is not None  # It is required.
    # Processes with a cached program would not wait for others to compile it.
    begin(argv, workdir, is_cached=not is_distributed())
    main(settings(), pathlib.Path(workdir))

  open_missing_streams()
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Handled like SIGTERM: imports and callbacks can swallow KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
  app.run(
    with_flags, flags_parser=functools.partial(parse_config_flags, base=base)
  )


def settings(parsed: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
  """Returns the settings of --config, with the changes made by flags."""
  config: Any = parsed['config'].value
  chosen = config.to_dict()
  changed = given(parsed)
  if {'steps', 'updates'} <= changed:
    fail(
      '--config.steps and --config.updates both say how long to train: give '
      'one of them.'
    )
  if 'updates' in changed and 'steps' in chosen:
    chosen['steps'] = 0
  return chosen


def given(parsed: flags.FlagValues = flags.FLAGS) -> set[str]:
  """Returns the names of the settings that flags have changed."""
  return {
    name.partition('.')[0]
    for name in config_flags.get_override_values(parsed['config'])
  }


def settings_of(config: str, overrides: Sequence[str]) -> dict[str, Any]:
  """Returns the settings of a command, with its flags --config.NAME=VALUE."""
  changes = map(_with_whole_number, overrides)
  argv = ['launcher', f'--config={config}', *changes]
  parsed = flags.FlagValues()
  config_files.define(flag_values=parsed, sys_argv=argv)
  with _failing_in_one_line():
    parsed(argv)
    return settings(parsed)


# The startup of launchers.


def start(main: Callable[[Sequence[str]], None]) -> None:
  """Parses the flags of a launcher that makes no runs, and calls main(argv)."""
  open_missing_streams()
  app.run(main, flags_parser=parse_flags)


def open_missing_streams() -> None:
  """Opens standard streams that the caller has closed.

  Otherwise a file of the run could get the number of such a stream, and
  messages of libraries would be written into it.
  """
  for name, mode in {'stdin': 'r', 'stdout': 'w', 'stderr': 'w'}.items():
    if getattr(sys, name) is None:
      setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def begin(
  argv: Sequence[str],
  workdir: str | None = None,
  is_cached: bool | None = True,
) -> None:
  """Prepares this process; ends it if the command line has other arguments.

  Args:
    argv: The name of the program, and the arguments that are not flags.
    workdir: The folder of a run, whose modules must be imported; it may not
      exist yet. None without a run.
    is_cached: Whether compiled programs are cached unless the user decides;
      None if caching is not worthwhile.
  """
  if argv[1:]:
    fail(f'Not understood: {" ".join(argv[1:])}')
  prepare_process(is_quiet=not flags.FLAGS['verbosity'].present)
  if is_cached is not None:
    set_up_cache(cache_flag().value, is_cached)
  import_modules(workdir)


def prepare_process(is_quiet: bool = True) -> None:
  """Prepares a process for runs; does not read its flags."""
  if is_quiet:
    # Some packages log every step at the level INFO.
    logging.set_verbosity(logging.WARNING)
    hide_tracebacks()
  paths_lib.keep_folder()
  compilation_cache.collect_garbage_rarely()
  compilation_cache.leave_loops_rolled()
  # Matplotlib then draws without a window.
  os.environ['MPLBACKEND'] = 'agg'


def import_modules(workdir: str | None = None) -> None:
  """Imports the modules that the command line names.

  These are the modules of --import, and MODULE of environments that flags name
  as gymnasium/MODULE:ID. Importing runs code, so the modules that a run has
  recorded in its folder, which may be from a stranger, are never imported: the
  program ends if one of them was not named, or if a module is missing.

  Args:
    workdir: The folder of a run, which may not exist; None without a run.
  """
  sources = {
    **dict.fromkeys(_modules_of_environments(), 'gymnasium/'),
    **dict.fromkeys(IMPORT.value, '--import='),
  }
  for name, source in sources.items():
    try:
      import_module(name)
    except ImportError as error:
      fail(
        f'{source}{name}: {error}. Modules are looked for in the folder in '
        'which the command is given, and on PYTHONPATH.'
      )
  folder = pathlib.Path(paths_lib.expanded(workdir or '.'))
  has_run = bool(workdir) and (folder / 'imports.json').exists()
  if not sources and not has_run:
    return
  # Imported late, because it loads JAX.
  from disco_rl.runtime import workdirs

  workdirs.IMPORTED[:] = dict.fromkeys([*workdirs.IMPORTED, *sources])
  if has_run:
    with in_one_line():
      workdirs.check_imports(folder)


def import_module(name: str) -> None:
  """Imports a module of the user, who has named it.

  It is looked for in the folder of the command first, although that is the last
  folder for modules that nobody names.

  Raises:
    ImportError: There is no such module, or it is called like another one that
      this program uses.
  """
  top = name.partition('.')[0]
  folder = paths_lib.absolute('')
  spec = importlib.machinery.PathFinder.find_spec(top, [folder])
  if spec is not None and spec.loader is not None and spec.origin is not None:
    if top not in sys.modules:
      sys.modules[top] = importlib.util.module_from_spec(spec)
      try:
        spec.loader.exec_module(sys.modules[top])
      except BaseException:
        del sys.modules[top]
        raise
    used = getattr(sys.modules[top], '__file__', None) or top
    if os.path.realpath(used) != os.path.realpath(spec.origin):
      raise ImportError(
        f'{spec.origin} is called like a module that this program uses: rename '
        'it'
      )
  importlib.import_module(name)


def _modules_of_environments() -> Iterator[str]:
  """Yields MODULE of all names gymnasium/MODULE:ID in flags and the config."""
  values = [
    flags.FLAGS[name].value
    for name in ('config', *_OF_ENVIRONMENTS)
    if name in flags.FLAGS
  ]
  yield from _MODULE.findall('\n'.join(_texts(values)))


def _texts(value: Any) -> Iterator[str]:
  """Yields all texts within dictionaries and sequences, as lines."""
  if isinstance(value, str):
    yield from value.replace('=', ',').split(',')
  elif isinstance(value, Mapping | ml_collections.ConfigDict):
    for x in value.values():
      yield from _texts(x)
  elif isinstance(value, Sequence):
    for x in value:
      yield from _texts(x)


def set_up_cache(folder: str | None, is_on: bool = True) -> None:
  """Sets the folder of compiled programs, before anything is compiled.

  It sets environment variables, which child processes inherit.

  Args:
    folder: The folder, or 'off'. None selects the folder of JAX's environment
      variable, or else the default.
    is_on: Whether the cache is on unless the user decides.
  """
  variable = compilation_cache.FOLDER.upper()
  if folder == 'off':
    _set('jax_enable_compilation_cache', False)
    return
  if compilation_cache.has_errors_of_loading():
    # This is for child processes; JAX may already have read it in this one.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  compilation_cache.hide_errors_of_loading()
  if folder is None and variable in os.environ:
    chosen = os.environ[variable]
    if chosen and '://' not in chosen:
      _set(compilation_cache.FOLDER, paths_lib.absolute(chosen))
    return
  if folder is None and not is_on:
    return
  path = pathlib.Path(folder) if folder else compilation_cache.default_folder()
  if path is None:
    return
  _set(compilation_cache.FOLDER, str(path))
  for name, value in compilation_cache.defaults(path).items():
    _set(name, value)


def _set(name: str, value: Any) -> None:
  """Sets an option here, and an environment variable for child processes."""
  import jax

  os.environ[name.upper()] = 'false' if value is False else str(value)
  jax.config.update(name, value)


# The command line.


def parse_flags(argv: Sequence[str]) -> Sequence[str]:
  """Parses flags like absl; shows help, and reports errors in one line."""
  if help.is_asked(argv):
    help.show()
  _check_flags(argv)
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    fail(_in_own_words(error))


def parse_config_flags(
  argv: list[str], base: ModuleType | None = None
) -> list[str]:
  """Parses flags, including those of settings; `base` is that of `run`."""
  config_files.prefer(base)
  if help.is_asked(argv):
    help.show(base, _given_settings(argv, base))
  # Before a config is read, which loads JAX.
  _check_flags(argv, _REQUIRED)
  argv[:] = map(_with_whole_number, argv)
  sys.argv[:] = map(_with_whole_number, sys.argv)  # ml_collections reads it.
  with _failing_in_one_line():
    rest = flags.FLAGS(argv)
    # A missing file only raises when it is used.
    config_files.check_kind(settings(), base)
  if rest[1:]:
    fail(f'Not understood: {" ".join(rest[1:])}')
  return rest


# Flag that runs need -> what to say without it.
_REQUIRED = {
  'config': 'Name the settings to begin with, as in --config=quickstart; '
  'disco-rl --help lists their names.',
  'workdir': 'Name the folder of the run, as in --workdir=runs/NAME.',
}


def _check_flags(
  argv: Sequence[str], required: Mapping[str, str] = types.MappingProxyType({})
) -> None:
  """Ends the program if a flag is unknown or missing.

  Args:
    argv: The name of the program, and its arguments.
    required: Flag -> the message if it is missing.
  """
  given = [
    argument.lstrip('-').partition('=')[0]
    for argument in itertools.takewhile(lambda x: x != '--', argv[1:])
    if argument.startswith('-')
  ]
  has_config = 'config' in flags.FLAGS
  for name in given:
    if not (
      name in flags.FLAGS
      or name.removeprefix('no') in flags.FLAGS
      or (has_config and name.startswith('config.'))
    ):
      near = difflib.get_close_matches(name, flags.FLAGS, n=1, cutoff=0.75)
      if near:
        fail(f'There is no flag --{name}. Did you mean --{near[0]}?')
      if has_config:
        fail(
          f'There is no flag --{name}. Settings begin with the config: '
          f'--config.{name}=VALUE. --help lists them.'
        )
      fail(f'There is no flag --{name}. --help lists those of this command.')
  for name, message in required.items():
    if name not in given and 'flagfile' not in given:
      fail(message)


# A setting with a number such as 1e5.
_SCIENTIFIC = re.compile(r'(--?config\.[\w.]+=)(\d+(?:\.\d+)?[eE]\+?\d\d?)')


def _with_whole_number(argument: str) -> str:
  """Writes whole numbers such as 1e5 in settings as Python reads them."""
  found = _SCIENTIFIC.fullmatch(argument)
  if found is None or not float(found[2]).is_integer():
    return argument
  return f'{found[1]}{int(float(found[2]))}'


# The end of a message of ml_collections or absl -> what a value must be.
_KINDS = {
  'invalid literal for int': 'a whole number',
  'could not convert string to float': 'a number',
  "('Non-boolean argument": 'True or False',
}


def _in_own_words(error: Exception) -> str:
  """Returns the message of an error about a flag."""
  text = str(error).strip().splitlines()[-1]
  for theirs, ours in _KINDS.items():
    found = re.match(rf'flag (--\S+=.*?): {re.escape(theirs)}', text)
    if found:
      return f'{found[1]} must be {ours}.'
  # If the config file raises an error, the message has the whole traceback.
  return re.sub(r'^\w+Error: ', '', text)


@contextlib.contextmanager
def _failing_in_one_line() -> Iterator[None]:
  """Ends the program with one line if flags or the config are wrong."""
  try:
    yield
  except (flags.Error, OSError) as error:
    fail(_in_own_words(error))
  except (AttributeError, KeyError) as error:
    # ml_collections raises these for unknown settings.
    answer = error.args[0]
    name, *nearest = str(getattr(answer, 'args', [answer])[0]).splitlines()
    fail(f'Unknown setting {name}. {" ".join(nearest) or _SEE_HELP}')
  except (IndexError, SyntaxError, TypeError, ValueError) as error:
    # ml_collections raises these for invalid names of settings.
    fail(f'A flag names no setting: {error}. {_SEE_HELP}')


def _given_settings(argv: list[str], base: ModuleType | None) -> dict[str, Any]:
  """Returns the settings of a command with --help, or {} without --config."""
  names = [argument.lstrip('-').partition('=')[0] for argument in argv[1:]]
  if 'config' not in names:
    return {}
  # ml_collections reads the command line as well.
  argv[:] = [x for x in argv if not help.is_asked(['', x])]
  parse_config_flags([*argv, '--workdir=.'], base)
  return settings()
