"""Optional packages, imported when an environment of theirs is made."""

import importlib
from typing import Any


def load(module: str, environments: str, package: str, remedy: str) -> Any:
  """Imports a module of an optional package.

  Args:
    module: full name, such as 'nle.env.tasks'.
    environments: The environments that need it, for the message.
    package: name and version, for the message.
    remedy: command that installs it, or its extra of this package.

  Returns:
    The module.

  Raises:
    ImportError: if it cannot be imported.
  """
  try:
    # A package that was blocked or removed is noticed by its own name, although
    # its modules may have been imported before.
    importlib.import_module(module.partition('.')[0])
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f'{environments} requires {package}, which cannot be imported ({error}): '
      f'{remedy}'
    ) from error
