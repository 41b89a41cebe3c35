"""How optional packages are installed, in a clone and with the wheel."""

import pathlib

# What `pip install` knows the package by; it is imported as disco_rl.
DISTRIBUTION = 'disco-rl-discovery'


def install(name: str) -> str:
  """Returns the command that installs an extra, such as 'atari'."""
  if pathlib.Path(__file__).parents[1].joinpath('setup.py').exists():
    return f"pip install -e '.[{name}]'"
  return f"pip install '{DISTRIBUTION}[{name}]'"
