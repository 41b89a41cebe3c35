"""The files of disco_rl import one way, down the layers."""

import ast
from collections.abc import Iterator
from collections.abc import Mapping
import fnmatch
import graphlib
import pathlib

import pytest

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

# From the top: a file may import from its own layer and from those above it.
LAYERS = (
  (
    '__init__',
    'compilation',
    'files',
    'hosts',
    'sharding',
    'types',
    'validation',
  ),
  ('categorical', 'moments', 'value_targets', 'optimizers', 'episodes'),
  ('networks/*',),
  ('weights*', 'update_rules/*'),
  ('environments/*',),
  ('actor', 'host_actor', 'replay', 'learner', 'agent'),
  (
    'checkpointing',
    'interruption',
    'memory',
    'metrics',
    'plotting',
    'progress',
    'workdirs',
  ),
  ('evaluation/*',),
  ('meta_training/*',),
  ('library/*',),
  ('analysis/*',),
)
# Files that may import only these.
RESTRICTED = {
  'environments/*': ('types', 'validation', 'environments/*'),
  'checkpointing': ('types', 'files', 'hosts'),
  'metrics': ('types', 'files'),
  'progress': ('types', 'files'),
}
# Flags and numbers: they import disco_rl, never the other way round.
WIRING = ('configs', 'launch')

# File of disco_rl, such as 'networks/torsos' -> what it imports: such files,
# or dotted names of what is none, in WIRING or in disco_rl.
Imports = Mapping[str, frozenset[str]]


def offences(repository: pathlib.Path) -> list[str]:
  """What is wrong with the imports of the files of disco_rl."""
  imports = _read_imports(repository / 'disco_rl')
  found = [
    f'disco_rl/{file}.py belongs to no layer: give it one in LAYERS'
    for file in imports
    if _layer(file) is None
  ]
  for file, targets in imports.items():
    reasons = [(target, _reason(file, target)) for target in sorted(targets)]
    found += [
      f'disco_rl/{file}.py imports {target}, {reason}'
      for target, reason in reasons
      if reason
    ]
  return found + _cycles(imports)


def _reason(file: str, target: str) -> str:
  """Why a file must not import a target; empty if it may."""
  if target.split('.')[0] in WIRING:
    return 'which no file of disco_rl may import'
  if '.' in target:
    return 'which is no file'
  for pattern, allowed in RESTRICTED.items():
    if fnmatch.fnmatch(file, pattern) and not _matches(target, allowed):
      return f'but may import nothing but {", ".join(allowed)}'
  own, other = _layer(file), _layer(target)
  if own is not None and other is not None and other > own:
    return 'which is in a layer below it'
  return ''


def _layer(file: str) -> int | None:
  layers = (i for i, layer in enumerate(LAYERS) if _matches(file, layer))
  return next(layers, None)


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
  return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


def _cycles(imports: Imports) -> list[str]:
  try:
    graphlib.TopologicalSorter(imports).prepare()
  except graphlib.CycleError as error:
    # Listed from what is imported to what imports it.
    cycle = ' -> '.join(reversed(error.args[1]))
    return [f'imports go in a circle: {cycle}']
  return []


def _read_imports(package: pathlib.Path) -> Imports:
  paths = {
    path.relative_to(package).with_suffix('').as_posix(): path
    for path in sorted(package.rglob('*.py'))
  }
  return {
    file: frozenset(
      _resolve(names, paths)
      for names in _imported_names(ast.parse(path.read_bytes()), file)
      if names[0].split('.')[0] in ('disco_rl', *WIRING)
    )
    for file, path in paths.items()
  }


def _imported_names(tree: ast.AST, file: str) -> Iterator[tuple[str, ...]]:
  """For each import, also within functions: what it may mean, likeliest first.

  `from a import b` means the module a.b, or a value b of the module a.
  """
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from ((alias.name,) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      parts = [node.module] if node.module else []
      if node.level:
        parts = [*['disco_rl', *file.split('/')][: -node.level], *parts]
      module = '.'.join(parts)
      yield from ((f'{module}.{alias.name}', module) for alias in node.names)


def _resolve(names: tuple[str, ...], files: Mapping[str, object]) -> str:
  """The file that is meant; the dotted name if there is none."""
  for name in names:
    file = '/'.join(name.split('.')[1:])
    for candidate in (file, f'{file}/__init__'.lstrip('/')):
      if name.split('.')[0] == 'disco_rl' and candidate in files:
        return candidate
  return names[0]


def test_imports_go_down_the_layers() -> None:
  found = offences(_REPOSITORY)
  assert not found, '\n'.join(found)


def test_every_layer_exists() -> None:
  files = _read_imports(_REPOSITORY / 'disco_rl')
  patterns = [*RESTRICTED, *(pattern for layer in LAYERS for pattern in layer)]
  unused = [p for p in patterns if not fnmatch.filter(files, p)]
  assert not unused


# A made-up tree, in which all is well.
_TREE = {
  '__init__': '',
  'types': 'import jax',
  'moments': 'from disco_rl import types',
  'value_targets': 'from disco_rl import moments, types',
  'networks/__init__': '',
  'networks/lstm': 'import disco_rl.types',
  'networks/meta': 'from disco_rl.networks.lstm import LSTM',
  'weights': 'from disco_rl import weights_b\nfrom .networks import meta',
  'weights_b': '',
  'environments/base': 'from disco_rl import types\nimport launchpad',
  'environments/catch': 'from disco_rl.environments import base',
  'actor': 'from disco_rl.environments import base\nfrom disco_rl import types',
  'agent': 'from . import actor\nfrom .networks import meta',
  'metrics': 'import disco_rl.types as types',
  'evaluation/runner': 'from .. import agent, metrics\nfrom . import scores',
  'evaluation/scores': '',
}


def _offences(tmp_path: pathlib.Path, tree: Mapping[str, str]) -> list[str]:
  for file, source in tree.items():
    path = tmp_path / 'disco_rl' / f'{file}.py'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
  return offences(tmp_path)


def test_a_tree_in_order(tmp_path: pathlib.Path) -> None:
  assert not _offences(tmp_path, _TREE)


def _assert_named(found: list[str], file: str, target: str) -> None:
  found = [text for text in found if 'circle' not in text]
  assert len(found) == 1
  assert found[0].startswith(f'disco_rl/{file}.py imports {target}, ')


@pytest.mark.parametrize(
  'source',
  [
    'import disco_rl.agent.agent',
    'import disco_rl.agent.agent as agent_lib',
    'from disco_rl.agent import agent',
    'from disco_rl import types, agent',
    'from disco_rl.agent.agent import Agent',
    'from .. import agent',
    'from ..agent import Agent',
    'def f():\n  import disco_rl.agent.agent',
    'if TYPE_CHECKING:\n  from disco_rl import agent',
  ],
)
def test_an_import_is_found_in_every_form(
  source: str, tmp_path: pathlib.Path
) -> None:
  found = _offences(tmp_path, {**_TREE, 'networks/lstm': source})
  _assert_named(found, 'networks/lstm', 'agent')


@pytest.mark.parametrize(
  ('file', 'source', 'target'),
  [
    # Up the layers.
    ('__init__', 'from disco_rl import moments', 'moments'),
    ('types', 'from disco_rl import moments', 'moments'),
    ('networks/__init__', 'from disco_rl import weights', 'weights'),
    ('weights', 'import disco_rl.environments.base', 'environments/base'),
    ('weights', 'import disco_rl.agent.actor', 'actor'),
    ('agent', 'from disco_rl.evaluation import scores', 'evaluation/scores'),
    # Down the layers, but more than the layer may import.
    ('environments/base', 'from disco_rl import moments', 'moments'),
    ('metrics', 'from disco_rl import weights', 'weights'),
    ('progress', 'from disco_rl import metrics', 'metrics'),
    # Out of the package, and nowhere.
    ('agent', 'import configs', 'configs'),
    ('agent', 'from launch import evaluate', 'launch.evaluate'),
    ('agent', 'def f():\n  from configs.a import b', 'configs.a.b'),
    ('agent', 'from disco_rl.nothing import x', 'disco_rl.nothing.x'),
  ],
)
def test_a_wrong_import_is_named(
  file: str, source: str, target: str, tmp_path: pathlib.Path
) -> None:
  _assert_named(_offences(tmp_path, {**_TREE, file: source}), file, target)


@pytest.mark.parametrize('file', ['helpers', 'networks', 'new/trainer'])
def test_a_file_of_no_layer_is_named(file: str, tmp_path: pathlib.Path) -> None:
  (text,) = _offences(tmp_path, {**_TREE, file: ''})
  assert f'disco_rl/{file}.py belongs to no layer' in text


@pytest.mark.parametrize(
  ('changes', 'circle'),
  [
    (
      {'moments': 'from disco_rl import value_targets'},
      {'moments', 'value_targets'},
    ),
    (
      {
        'actor': 'from disco_rl import learner',
        'learner': 'def f():\n  from disco_rl import agent',
      },
      {'actor', 'learner', 'agent'},
    ),
  ],
)
def test_a_circle_within_a_layer_is_named(
  changes: dict[str, str], circle: set[str], tmp_path: pathlib.Path
) -> None:
  (text,) = _offences(tmp_path, {**_TREE, **changes})
  assert set(text.removeprefix('imports go in a circle: ').split(' -> ')) == (
    circle
  )
