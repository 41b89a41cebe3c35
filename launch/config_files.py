"""The flag that selects a config."""

from collections.abc import Mapping
import difflib
import os
import pathlib
from types import ModuleType
from typing import Any
from typing import ClassVar

from absl import flags
import ml_collections
from ml_collections import config_flags

from configs import evaluate

_CONFIGS = pathlib.Path(evaluate.__file__).parent


class _Parser(flags.ArgumentParser[Any]):
  """Reads a config, given by the path of its file or by its name."""

  # Set by `prefer`.
  base: ClassVar[ModuleType | None] = None

  def __init__(self, of_files: flags.ArgumentParser[Any]) -> None:
    self._of_files = of_files

  def parse(self, argument: str) -> Any:
    """Returns the config; raises ValueError if it cannot be made."""
    try:
      return _locked(self._of_files.parse(self._file(argument)), argument)
    # Elsewhere these mean that a flag names an unknown setting.
    except (AttributeError, LookupError, SyntaxError) as error:
      raise ValueError(f'{type(error).__name__}: {error}') from error

  def _file(self, path: str) -> str:
    """Returns the file and, after a colon, its variant."""
    file, colon, variant = path.partition(':')
    if file.endswith('.py') or os.sep in file:
      if not os.path.isfile(file):
        raise ValueError(f'There is no file {file!r}. {_offer(file)}')
      return path
    own = self.base is evaluate and path in evaluate.VARIANTS
    if not own and file in _files():
      return f'{_CONFIGS / file}.py{colon}{variant}'
    if path in evaluate.VARIANTS:
      if self.base not in (None, evaluate):
        raise ValueError(
          f'{path!r} is a starting point of disco-rl train: use that command.'
        )
      return f'{evaluate.__file__}:{path}'
    raise ValueError(f'There is no config {path!r}. {_offer(file)}')


def _locked(config: Any, argument: str) -> Any:
  """Converts what `get_config` returned to a ConfigDict without new settings.

  Raises:
    TypeError: It is no mapping.
  """
  if isinstance(config, ml_collections.FrozenConfigDict | Mapping):
    config = ml_collections.ConfigDict(config)
  if isinstance(config, ml_collections.ConfigDict):
    return config.lock()
  if config is None or isinstance(config, str | list | tuple):
    raise TypeError(
      f'get_config of {argument} returned {type(config).__name__}, expected an '
      'ml_collections.ConfigDict or a dictionary: does it lack a return?'
    )
  return config  # The error about a missing file, which its use raises.


def check_kind(settings: Mapping[str, object], base: ModuleType | None) -> None:
  """Raises flags.Error for settings of discovery where agents are trained.

  Args:
    settings: The settings of the config.
    base: The file in configs/ that describes the settings of the command.
  """
  if base is evaluate and 'meta_steps' in settings:
    examples = ', '.join([*evaluate.VARIANTS][:3])
    raise flags.Error(
      'This config is one of disco-rl meta-train, which discovers rules: use '
      f'that command, or a config of this one, such as {examples}.'
    )


def names() -> list[str]:
  """Returns the names of files, and of variants that are not names of files."""
  return sorted({*_files(), *evaluate.VARIANTS})


def _files() -> set[str]:
  """Returns the names of the files that define a config."""
  paths = _CONFIGS.glob('*.py')
  return {p.stem for p in paths if 'def get_config(' in p.read_text()}


def _offer(name: str) -> str:
  """Suggests configs with names similar to an unknown one, or all names."""
  near = difflib.get_close_matches(pathlib.Path(name).stem, names())
  return (
    f'Choose one of {", ".join(near or names())}, or name a file by its path.'
  )


def prefer(base: ModuleType | None) -> None:
  """Gives names of variants precedence over those of files.

  Args:
    base: The file in configs/ that has the variants; with None, files take
      precedence.
  """
  _Parser.base = base


def define(**how: Any) -> Any:
  """Defines the flag; returns its holder.

  Args:
    **how: Further arguments of `config_flags.DEFINE_config_file`.
  """
  holder = config_flags.DEFINE_config_file(
    'config',
    None,
    'Settings: a name such as quickstart or ablations:no_q, or a file.',
    lock_config=False,  # By `_locked`.
    **how,
  )
  flag = how.get('flag_values', flags.FLAGS)['config']
  flag.parser = _Parser(flag.parser)
  return holder
