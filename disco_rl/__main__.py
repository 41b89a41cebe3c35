"""The command `disco-rl`, which starts launchers by name.

`python -m disco_rl` is the same command.
"""

import ast
from collections.abc import Collection
import difflib
import importlib
import os
import pathlib
import re
import runpy
import sys

import disco_rl

_HERE = pathlib.Path(__file__).resolve().parent
_INSTALLED = _HERE / 'commands'
# The folder of the packages `launch` and `configs`. They can be imported only
# in the process of a command, because other packages have modules of these
# names.
_ROOT = _INSTALLED if _INSTALLED.is_dir() else _HERE.parent
# Arguments that name the user's own code.
_NAMES_CODE = re.compile(r'--?(import|config)\b|.*\bgymnasium/')
# Other names of commands: the word of the paper, and of earlier versions.
ALIASES = {'evaluate': 'train'}
# Names that other programs have -> the command that does it here.
_ELSEWHERE = {
  **dict.fromkeys(('enjoy', 'eval', 'film', 'render', 'test', 'watch'), 'play'),
  **dict.fromkeys(('fit', 'learn', 'run'), 'train'),
  **dict.fromkeys(('envs', 'list', 'ls'), 'list-environments'),
  **dict.fromkeys(('grid', 'search', 'tune'), 'sweep'),
  **dict.fromkeys(('discover', 'metatrain'), 'meta-train'),
  **dict.fromkeys(('curves', 'plot'), 'compare'),
}


def main() -> None:
  """Starts the launcher that the command line names."""
  try:
    try:
      _start()
    finally:
      if sys.stdout is not None:
        sys.stdout.flush()
  except BrokenPipeError:
    # A reader such as `head` has seen enough. Python writes what is left when
    # it ends, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(1)


def _start() -> None:
  """Implements `main`."""
  try:
    folder = [os.getcwd()]
  except FileNotFoundError:  # It has been deleted.
    folder = []
  if sys.path[:1] in ([''], folder):  # By python -m.
    del sys.path[0]
  # The user's folder has the modules of --import. It comes last: other files in
  # it may be called like modules that this program or Python needs. Without a
  # flag that names a module or a config it is left out: it may hold a file from
  # a stranger, and beside it a module called like a package that is missing.
  named = any(map(_NAMES_CODE.match, sys.argv[2:]))
  sys.path[:] = [str(_ROOT), *sys.path, *(folder if named else [])]
  name = sys.argv[1] if sys.argv[1:] else '--help'
  if name in ('-h', '-help', '--help', 'help'):
    print(_help())
    return
  if name == '--version':
    print(disco_rl.__version__)
    return
  launchers = _launchers()
  name = ALIASES.get(name, name)
  if name not in launchers:
    sys.exit(f'error: {_unknown(name, [*launchers, *ALIASES])}')
  del sys.argv[1]
  module = f'launch.{launchers[name].stem}'
  runpy.run_module(module, run_name='__main__', alter_sys=True)


def _launchers() -> dict[str, pathlib.Path]:
  """Returns the files of the launchers, by the names of commands."""
  return {
    path.stem.replace('_', '-'): path
    for path in sorted((_ROOT / 'launch').glob('*.py'))
    if "__name__ == '__main__'" in path.read_text()
  }


def _unknown(name: str, known: Collection[str]) -> str:
  """Returns a message that proposes the command that is likely meant."""
  if name.startswith('-'):
    return f'The command comes first: disco-rl train {name} or another one.'
  plain = name.replace('_', '-').lower()
  near = difflib.get_close_matches(plain, known)
  meant = [_ELSEWHERE[plain]] if plain in _ELSEWHERE else near
  if meant:
    return f'There is no command {name!r}: did you mean {", ".join(meant)}?'
  return f'There is no command {name!r}: choose one of {", ".join(known)}.'


def _help() -> str:
  """Returns the names of all launchers with their descriptions."""
  lines = ['Usage: disco-rl COMMAND --FLAG=VALUE ...', '', 'Commands:']
  for name, path in _launchers().items():
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ''
    lines.append(f'  {name:18}{docstring.splitlines()[0]}')
  lines += ['', 'Configs, for --config:']
  lines += [
    f'  {x}' for x in importlib.import_module('launch.config_files').names()
  ]
  return '\n'.join((*lines, '', 'disco-rl COMMAND --help says more.'))


if __name__ == '__main__':
  main()
