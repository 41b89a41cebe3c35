"""Imports optional packages when one of their environments is made."""

import importlib
from types import ModuleType


def load(
  module: str, environments: str, package: str, remedy: str
) -> ModuleType:
  """Imports a module of an optional package.

  Args:
    module: The full name, such as 'nle.env.tasks'.
    environments: The environments that need it, for the message.
    package: The name and version, for the message.
    remedy: The command that installs it, for the message.

  Raises:
    ImportError: The module cannot be imported.
  """
  try:
    # This detects a blocked or removed package, even if its modules have been
    # imported before.
    importlib.import_module(module.partition('.')[0])
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f'{environments} requires {package}, which cannot be imported ({error}): '
      f'{remedy}'
    ) from error
