"""What pyproject.toml cannot say: where packages are, and the README's links.

The README links to files of the repository by relative paths, which an index of
packages cannot follow: there, they are absolute.
"""

import pathlib
import re
import tomllib

import setuptools

# The launchers and their configs lie in a folder of the package, which
# disco_rl/__main__.py adds to the path: at the top they would replace other
# packages of these names.
_COMMANDS = ('launch', 'configs')
_ROOT = pathlib.Path(__file__).resolve().parent


def _description() -> str:
  """Returns the README with absolute links and pictures."""
  project = tomllib.loads((_ROOT / 'pyproject.toml').read_text('utf-8'))
  address = project['project']['urls']['Repository']
  raw = address.replace('//github.com/', '//raw.githubusercontent.com/')

  def absolute(match: re.Match[str]) -> str:
    start = f'{raw}/main' if match['picture'] else f'{address}/blob/main'
    return f'{match["picture"]}[{match["text"]}]({start}/{match["path"]})'

  return re.sub(
    r'(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)',
    absolute,
    (_ROOT / 'README.md').read_text('utf-8'),
  )


setuptools.setup(
  # An installation of a clone is a line of a .pth file. By default it would be
  # a finder, which comes after all folders: a program beside a clone that is
  # called disco_rl would import the clone's folder as an empty package.
  options={'editable_wheel': {'mode': 'compat'}},
  long_description=_description(),
  long_description_content_type='text/markdown',
  packages=[
    *setuptools.find_namespace_packages(include=['disco_rl', 'disco_rl.*']),
    *(f'disco_rl.commands.{name}' for name in _COMMANDS),
  ],
  package_dir={f'disco_rl.commands.{name}': name for name in _COMMANDS},
)
