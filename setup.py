"""What pyproject.toml cannot say: where packages are, in the wheel and here."""

import setuptools

# The launchers and their configs lie in a folder of the package, which
# disco_rl/__main__.py adds to the path: at the top they would replace other
# packages of these names.
_COMMANDS = ('launch', 'configs')

setuptools.setup(
  packages=[
    *setuptools.find_namespace_packages(include=['disco_rl', 'disco_rl.*']),
    *(f'disco_rl.commands.{name}' for name in _COMMANDS),
  ],
  package_dir={f'disco_rl.commands.{name}': name for name in _COMMANDS},
)
