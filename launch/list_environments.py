"""Lists the environments that disco-rl train and disco-rl meta-train accept.

  disco-rl list-environments
  disco-rl list-environments --suite=atari57 --specs
  disco-rl list-environments --json

Each line shows an environment's name, where it steps (on JAX's device or on the
host), and whether it is available. It is available if its package is installed
and, for Gymnasium, if its actions are discrete. Notes below the list say what
to install. Names with other sizes and files, such as catch/10x5, are also
valid. With --specs each environment is made, which also finds other errors.
--import=MODULE imports a module that registers your own environments.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
from typing import Any
import warnings

from absl import flags
import jax

from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import suites
from launch import common
from launch.errors import fail

_JSON = common.json_flag()
_SUITE = flags.DEFINE_string(
  'suite', None, 'List only a suite, a family such as atari, or a name.'
)
_SPECS = flags.DEFINE_bool(
  'specs',
  False,
  'Make each environment; show its observations and actions. Slow.',
)

# Column -> its value for an environment; `problem` is the error when the
# environment is made, or None.
Row = dict[str, Any]


def main(argv: Sequence[str]) -> None:
  """Prints the list."""
  common.begin(argv, is_cached=None)
  rows = list_rows(_SUITE.value, _SPECS.value)
  if _JSON.value:
    print(json.dumps(rows, indent=2))
  else:
    print('\n'.join(_table(rows)))


def list_rows(suite: str | None, has_specs: bool) -> list[Row]:
  """Returns a row for each environment of a suite, or of all for None.

  Without specs, only environments registered with Gymnasium are made; for
  others, the packages are checked.
  """
  names = _selected(suite)
  examples = {name.split('/')[0]: name for name in names}
  problems = {family: _problem(name) for family, name in examples.items()}
  rows = []
  for name in names:
    problem = problems[family := name.split('/')[0]]
    row: Row = {'name': name, 'kind': registry.kind(name), 'problem': problem}
    if has_specs:
      row |= {'observation': None, 'num_actions': None}
    if problem is None and (has_specs or family == 'gymnasium'):
      made = _make(name)
      row |= {column: made[column] for column in made if column in row}
    rows.append(row)
  return rows


def _selected(suite: str | None) -> Sequence[str]:
  names = registry.names()
  if suite is None:
    return names
  if suite in suites.SUITES:
    return suites.SUITES[suite]
  return [n for n in names if f'{n}/'.startswith(f'{suite}/')] or [suite]


def _problem(name: str) -> str | None:
  """Returns the error if the environment's package is not installed."""
  try:
    registry.validate(name)
  except ImportError as error:
    return str(error)
  except ValueError as error:
    fail(error)
  return None


def _make(name: str) -> Row:
  """Makes an environment; returns the columns of its spec or its problem."""
  try:
    with _quiet():
      environment = registry.make(name, num_environments=1, seed=0)
      if isinstance(environment, base.HostEnvironment):
        environment.close()
  # Packages raise all types of errors; these must not end the list.
  except Exception as error:
    # Omits the name, so that a package for many environments is listed once.
    return {'problem': str(error).removeprefix(f'{name} ')}
  spec = environment.spec
  leaves = ', '.join(
    f'{jax.tree_util.keystr(path, simple=True, separator="/")} '
    f'{leaf.dtype}[{",".join(map(str, leaf.shape))}]'.lstrip()
    for path, leaf in jax.tree.leaves_with_path(spec.observation)
  )
  return {'observation': leaves, 'num_actions': spec.num_actions}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Suppresses output and warnings of packages."""
  with (
    open(os.devnull, 'w', encoding='utf-8') as nowhere,
    contextlib.redirect_stdout(nowhere),
    contextlib.redirect_stderr(nowhere),
    warnings.catch_warnings(),
  ):
    warnings.simplefilter('ignore')
    yield


def _table(rows: Sequence[Row]) -> Iterator[str]:
  """Yields the rows as a table with titles, followed by their problems."""
  problems = dict.fromkeys(row['problem'] for row in rows if row['problem'])
  available = {None: 'yes'}
  available |= {p: f'no ({i})' for i, p in enumerate(problems, start=1)}
  columns = [column for column in rows[0] if column != 'problem']
  lines = [(*columns, 'available')]
  for row in rows:
    cells = (row[column] for column in columns)
    texts = ('' if cell is None else str(cell) for cell in cells)
    lines.append((*texts, available[row['problem']]))
  widths = [max(map(len, column)) for column in zip(*lines)]
  for line in lines:
    yield '  '.join(map(str.ljust, line, widths)).rstrip()
  for problem in problems:
    yield f'{available[problem]}: {" ".join(problem.split())}'


if __name__ == '__main__':
  common.start(main)
