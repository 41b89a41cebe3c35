"""Lists the environments that launch.evaluate and launch.meta_train take.

  python -m launch.list_environments
  python -m launch.list_environments --suite=atari57 --specs
  python -m launch.list_environments --json

One line for each: its name, where it steps (on JAX's device or on the host),
and whether its package is here; if not, what to install follows below. Names of
other sizes and files, such as catch/10x5, are taken, too. With --specs, each is
made, which shows also what cannot be made for other reasons.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging
import jax

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import suites
from launch.errors import fail

_SUITE = flags.DEFINE_string(
  'suite', None, 'Only these: a suite, a family such as atari, or a name.'
)
_SPECS = flags.DEFINE_bool(
  'specs', False, 'Makes each one, and shows what agents see and can do. Slow.'
)
_JSON = flags.DEFINE_bool('json', False, 'Prints JSON instead of a table.')

# Column -> what it says of one environment. `problem` says why it cannot be
# made, None if it can.
Row = dict[str, Any]


def main(argv: Sequence[str]) -> None:
  """Prints the list."""
  if argv[1:]:
    fail(f'Not understood: {" ".join(argv[1:])}')
  if not flags.FLAGS['verbosity'].present:
    # JAX reports the backends that it does not find as INFO.
    logging.set_verbosity(logging.WARNING)
  rows = list_rows(_SUITE.value, _SPECS.value)
  if _JSON.value:
    print(json.dumps(rows, indent=2))
  else:
    print('\n'.join(_table(rows)))


def list_rows(suite: str | None, has_specs: bool) -> list[Row]:
  """Describes environments.

  Args:
    suite: of the flag.
    has_specs: whether each is made; if not, those of one family are taken to be
      alike in what they need.

  Returns:
    A row for each.
  """
  names = _selected(suite)
  # Any one of a family tells whether its package is there.
  examples = {name.split('/')[0]: name for name in names}
  problems = {family: _problem(name) for family, name in examples.items()}
  rows: list[Row] = [
    {
      'name': name,
      'kind': registry.kind(name),
      'problem': problems[name.split('/')[0]],
    }
    for name in names
  ]
  return [_with_spec(row) for row in rows] if has_specs else rows


def _selected(suite: str | None) -> Sequence[str]:
  names = registry.names()
  if suite is None:
    return names
  if suite in suites.SUITES:
    return suites.SUITES[suite]
  beginning = f'{suite}/'
  return [n for n in names if f'{n}/'.startswith(beginning)] or [suite]


def _problem(name: str) -> str | None:
  """Why an environment cannot be made, as far as its package goes."""
  try:
    registry.validate(name)
  except ImportError as error:
    return str(error)
  except ValueError as error:
    fail(error)
  return None


def _with_spec(row: Row) -> Row:
  """Adds the columns `observation` and `num_actions`."""
  row = {**row, 'observation': None, 'num_actions': None}
  if row['problem'] is not None:
    return row
  try:
    spec = _spec(row['name'])
  # Packages raise what they like, and one should not hide the others.
  except Exception as error:
    return {**row, 'problem': str(error)}
  return {
    **row,
    'observation': _describe(spec.observation),
    'num_actions': spec.num_actions,
  }


def _spec(name: str) -> types.EnvironmentSpec:
  # What packages print in passing is no part of the list.
  with contextlib.redirect_stdout(sys.stderr):
    environment = registry.make(name, num_environments=1, seed=0)
  if isinstance(environment, base.HostEnvironment):
    environment.close()
  return environment.spec


def _describe(observation: types.PyTree) -> str:
  """Such as 'glyphs int16[21,79], blstats int32[27]'."""
  return ', '.join(
    f'{_path(path)} {leaf.dtype}{_sizes(leaf.shape)}'.lstrip()
    for path, leaf in jax.tree.leaves_with_path(observation)
  )


def _path(path: Any) -> str:
  return jax.tree_util.keystr(path, simple=True, separator='/')


def _sizes(shape: tuple[int, ...]) -> str:
  return f'[{",".join(map(str, shape))}]'


def _table(rows: Sequence[Row]) -> Iterator[str]:
  """Lines: the rows in columns below their titles, then their problems."""
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


def _parse_flags(argv: Sequence[str]) -> Sequence[str]:
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    fail(error)


if __name__ == '__main__':
  app.run(main, flags_parser=_parse_flags)
