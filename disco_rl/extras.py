"""Installation of optional packages."""

# The name for `pip install`; the package is imported as disco_rl.
DISTRIBUTION = 'disco-rl-discovery'


def install(name: str) -> str:
  """Returns the command that installs an extra, such as 'atari'.

  pip keeps the installed package, whether it is from a clone or a wheel.
  """
  return f"pip install '{DISTRIBUTION}[{name}]'"
