"""Optional packages, and names of modules."""

# The name for `pip install`; the package is imported as disco_rl.
DISTRIBUTION = 'disco-rl-discovery'


def install(name: str) -> str:
  """Returns the command that installs an extra, such as 'atari'.

  pip keeps the installed package, whether it is from a clone or a wheel.
  """
  return f"pip install '{DISTRIBUTION}[{name}]'"


def is_module(name: str) -> bool:
  """Returns whether a text can be the name of a module, and not a path."""
  return all(part.isidentifier() for part in name.split('.'))
