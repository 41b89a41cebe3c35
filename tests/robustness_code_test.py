"""Nothing unpickles, and nothing is downloaded without a checksum."""

import ast
from collections.abc import Iterator
import json
import pathlib

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_FOLDERS = ('disco_rl', 'launch', 'configs', 'examples', 'benchmarks', 'colabs')

# Modules that unpickle, or that download without a checksum.
_FORBIDDEN = {
  'cloudpickle',
  'dill',
  'ftplib',
  'http.client',
  'httpx',
  'huggingface_hub',
  'joblib',
  'marshal',
  'pickle',
  'requests',
  'shelve',
  'tensorflow_datasets',
  'torch',
  'urllib',
  'urllib.request',
  'urllib3',
  'wget',
}
# Function -> the argument that it must be given, with a constant or anything.
_REQUIRED = {
  'load': ('allow_pickle', False),
  'read_array': ('allow_pickle', False),
  'retrieve': ('known_hash', ...),
  'create': ('registry', ...),
}
_OWNERS = {'np', 'numpy', 'format', 'npyio', 'pooch', 'jnp'}


def offences(source: str) -> list[str]:
  """Lines that import what is forbidden, or call without what is required."""
  found = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      module = node.module or ''
      names = {module, *(f'{module}.{alias.name}' for alias in node.names)}
    elif isinstance(node, ast.Call) and not _is_safe(node):
      names = {'*'}
    else:
      continue
    if names & {*_FORBIDDEN, '*'}:
      found.append(ast.unparse(node))
  return found


def _is_safe(call: ast.Call) -> bool:
  """Whether a call that reads or downloads has what it must have."""
  function = call.func
  if not isinstance(function, ast.Attribute):
    return True
  owner = ast.unparse(function.value).split('.')[-1]
  if owner not in _OWNERS or function.attr not in _REQUIRED:
    return True
  name, wanted = _REQUIRED[function.attr]
  given = {k.arg: k.value for k in call.keywords}.get(name)
  if wanted is ...:
    # A hash that is None is not checked.
    return given is not None and ast.unparse(given) != 'None'
  return isinstance(given, ast.Constant) and given.value is wanted


def sources() -> Iterator[tuple[str, str]]:
  """Names and texts of all files, and of the cells of all notebooks."""
  for folder in _FOLDERS:
    for path in sorted((_REPOSITORY / folder).rglob('*')):
      name = str(path.relative_to(_REPOSITORY))
      if path.suffix == '.py':
        yield name, path.read_text(encoding='utf-8')
      elif path.suffix == '.ipynb':
        cells = json.loads(path.read_text(encoding='utf-8'))['cells']
        code = [''.join(c['source']) for c in cells if c['cell_type'] == 'code']
        lines = '\n'.join(code).splitlines()
        # Commands of the notebook and of the shell are no Python.
        yield name, '\n'.join(x for x in lines if not x.startswith(('%', '!')))


def test_all_files_are_safe() -> None:
  files = dict(sources())
  assert {name.split('/')[0] for name in files} >= {*_FOLDERS}
  found = {name: offences(source) for name, source in files.items()}
  assert {name: lines for name, lines in found.items() if lines} == {}
  downloads = [n for n, text in files.items() if 'pooch.retrieve(' in text]
  assert downloads == ['disco_rl/update_rules/weights_published.py']


@pytest.mark.parametrize(
  'source',
  [
    'import pickle',
    'from urllib import request',
    'from urllib.request import urlopen',
    'import requests as r',
    'x = np.load(path)',
    'x = np.load(path, allow_pickle=True)',
    'x = np.load(path, allow_pickle=flag)',
    'x = np.lib.format.read_array(file)',
    'pooch.retrieve(url, fname="a")',
    'pooch.retrieve(url, known_hash=None)',
    'def f():\n  import dill',
  ],
)
def test_what_is_unsafe_is_found(source: str) -> None:
  assert len(offences(source)) == 1


@pytest.mark.parametrize(
  'source',
  [
    'x = np.load(path, allow_pickle=False)',
    'pooch.retrieve(url, known_hash=f"sha256:{digest}")',
    'weights.load(path)',
    'import urllib.parse',
  ],
)
def test_what_is_safe_is_not(source: str) -> None:
  assert offences(source) == []
