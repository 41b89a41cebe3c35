"""Breaks the code in small ways, and prints which faults no test finds.

  python tests/mutants.py disco_rl/maths --number=20 --seed=0

A mutant is one edit of the syntax tree: another operator, comparison, constant
or slice, a negated condition, or an argument or a statement left out. It is
found if a test fails. If tests neither fail nor end within `--seconds`, it may
hang or the machine may be busy: such mutants are counted separately, and should
be run again alone. The tests of `disco_rl/PACKAGE/MODULE.py` are
`tests/PACKAGE/MODULE_test.py`; if it finds nothing, the tests that import the
module, then those in the folder. `--since=COMMIT` draws from lines changed
since then. A mutant that survives shows a missing test, unless no caller can
see it.

A mutant takes seconds to minutes, so run this by hand. For many mutants it is
quicker to run only the tests that reach their lines, those that run the fewest
lines first, as recorded in one run of all tests (pip install pytest-cov):

  python -m pytest -n 0 --cov=disco_rl --cov-context=test --cov-report=
  python tests/mutants.py disco_rl --number=100 --coverage=.coverage
"""

import argparse
import ast
import collections
from collections.abc import Iterator
import compileall
import copy
import dataclasses
import os
import pathlib
import py_compile
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_PAIRS = (
  (ast.Add, ast.Sub),
  (ast.Mult, ast.Div),
  (ast.Lt, ast.LtE),
  (ast.Gt, ast.GtE),
  (ast.Eq, ast.NotEq),
  (ast.In, ast.NotIn),
  (ast.Is, ast.IsNot),
  (ast.And, ast.Or),
)
_SWAPPED: dict[type, Any] = {a: b for p in _PAIRS for a, b in (p, p[::-1])}
# The maximal number of tests for a mutant: most tests run some of the lines.
_MOST_TESTS = 40
# Mostly texts of errors.
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)


@dataclasses.dataclass(frozen=True)
class Mutant:
  """Source code that replaces `node` in a file."""

  path: pathlib.Path
  node: ast.expr | ast.stmt
  replacement: str

  def apply(self, source: str) -> str:
    """Replaces the text of the node."""
    lines = source.encode().splitlines(keepends=True)
    first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
    head = lines[first][: self.node.col_offset]
    tail = lines[last][self.node.end_col_offset or 0 :]
    lines[first : last + 1] = [head + self.replacement.encode() + tail]
    return b''.join(lines).decode()

  def __str__(self) -> str:
    old = ast.unparse(self.node)
    return f'{self.path}:{self.node.lineno} {old:.60} -> {self.replacement:.60}'


def variants(node: ast.AST) -> Iterator[ast.AST | str]:
  """Yields replacements of a node."""
  changed = copy.deepcopy(node)
  match changed:
    case ast.BinOp() | ast.BoolOp() if type(changed.op) in _SWAPPED:
      changed.op = _SWAPPED[type(changed.op)]()
      yield changed
    case ast.Compare() if type(changed.ops[0]) in _SWAPPED:
      changed.ops[0] = _SWAPPED[type(changed.ops[0])]()
      yield changed
    case ast.UnaryOp():
      yield changed.operand
    case ast.IfExp():
      changed.body, changed.orelse = changed.orelse, changed.body
      yield changed
    case ast.Constant() if isinstance(changed.value, bool):
      yield ast.Constant(not changed.value)
    case ast.Constant() if isinstance(changed.value, int | float):
      yield ast.Constant(changed.value + 1)
    case ast.Slice():
      lower = ast.unparse(changed.lower) if changed.lower else '0'
      upper = ast.unparse(changed.upper) if changed.upper else ''
      yield f'{lower} + 1:{upper}'
    case ast.Call(args=[_, _, *_]):
      changed.args[0], changed.args[1] = changed.args[1], changed.args[0]
      yield changed
    case ast.Call(keywords=[_, *_]):
      del changed.keywords[-1]
      yield changed
    case ast.Expr(value=ast.Call()) | ast.AugAssign():
      yield 'pass'
    case ast.If():
      yield ast.UnaryOp(ast.Not(), changed.test)


def nodes(tree: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
  """Yields the expressions and statements in the bodies of functions."""
  for child in ast.iter_child_nodes(tree):
    if isinstance(child, _SKIPPED):
      continue
    if isinstance(child, ast.FunctionDef):
      for statement in child.body:
        if not isinstance(statement, _SKIPPED):
          yield statement
          yield from nodes(statement, inside=True)
    else:
      if inside:
        yield child
      yield from nodes(child, inside)


def mutants_of(path: pathlib.Path, lines: set[int] | None) -> Iterator[Mutant]:
  """Yields all mutants of a file, or those of some of its lines."""
  for node in nodes(ast.parse((REPOSITORY / path).read_text())):
    # Only the condition of an `if` is replaced.
    place = node.test if isinstance(node, ast.If) else node
    if lines is not None and getattr(place, 'lineno', None) not in lines:
      continue
    for variant in variants(node):
      text = variant if isinstance(variant, str) else ast.unparse(variant)
      if isinstance(place, ast.expr):
        bare = isinstance(place, ast.Constant | ast.Slice)
        yield Mutant(path, place, text if bare else f'({text})')
      elif isinstance(place, ast.stmt):
        yield Mutant(path, place, text)


def git(*arguments: str) -> str:
  """Returns what git prints."""
  command = ['git', '-C', str(REPOSITORY), *arguments]
  return subprocess.run(command, capture_output=True, text=True).stdout


def changed_lines(path: pathlib.Path, commit: str) -> set[int]:
  """Returns the numbers of the lines that differ from those of a commit."""
  diff = git('diff', '-U0', commit, '--', str(path))
  lines = set[int]()
  for start, size in re.findall(r'(?m)^@@ \S+ \+(\d+)(?:,(\d+))? @@', diff):
    lines.update(range(int(start), int(start) + int(size or 1)))
  return lines


def tests_of(path: pathlib.Path) -> list[list[str]]:
  """Returns the tests of a module, those most likely to fail first."""
  folder = pathlib.Path('tests', *path.parts[1:-1])
  folders = [x for x in (folder, *folder.parents) if (REPOSITORY / x).exists()]
  own = [x / f'{path.stem}_test.py' for x in folders] + [folder / path.stem]
  own = [str(x) for x in own if (REPOSITORY / x).exists()][:1]
  package = '.'.join(path.parts[:-1])
  imported = rf'(?m)^\s*from {re.escape(package)} import {path.stem}\b'
  importing = [
    name
    for name in git('ls-files', 'tests/*_test.py').split()
    if re.search(imported, (REPOSITORY / name).read_text()) and name not in own
  ]
  return [x for x in (own, importing, [str(x) for x in folders[:1]]) if x]


def tests_by_line(data: str) -> dict[tuple[str, int], list[str]]:
  """Reads the file of --coverage: (path, line) -> the tests that run it."""
  import coverage

  measured = coverage.CoverageData(data)
  measured.read()
  lines = collections.defaultdict(set)
  for name in measured.measured_files():
    path = name[name.rindex('/disco_rl/') + 1 :]
    for line, contexts in measured.contexts_by_lineno(name).items():
      for test, _, phase in (x.rpartition('|') for x in contexts):
        if test:
          # A fixture may be made for one test, and used by others.
          whole_file = test.split('::')[0]
          lines[test if phase == 'run' else whole_file].add((path, line))
  tests = collections.defaultdict(list)
  for test in sorted(lines, key=lambda test: len(lines[test])):
    for place in lines[test]:
      tests[place].append(test)
  return tests


def failing(
  folder: pathlib.Path, tests: list[list[str]], seconds: float
) -> str | None:
  """Runs tests in a copy until one fails.

  Args:
    folder: The copy.
    tests: Groups of tests; each group is run by one process.
    seconds: The time limit of a group.

  Returns:
    The test that fails; '' if all pass; None if a group ran out of time and
    nothing failed in the others.
  """
  command = [sys.executable, '-B', '-m', 'pytest', '-x', '-q', '--tb=no']
  nothing: str | None = ''
  for some in tests:
    process = subprocess.Popen(
      [*command, *some],
      cwd=folder,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      start_new_session=True,
    )
    try:
      output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
      # Also kills what it has started, which would keep its output open.
      os.killpg(process.pid, signal.SIGKILL)
      process.communicate()
      nothing = None
      continue
    if process.returncode:
      named = re.findall(r'(?m)^(?:FAILED|ERROR) ([^\s\[]+)', output)
      return (named or some)[0]
  return nothing


def main() -> None:
  """Prints one line for each mutant, with a test that finds it, and a count."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('paths', nargs='+')
  parser.add_argument('--number', type=int, default=20)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument(
    '--since', help='commit; only draws from lines changed since'
  )
  parser.add_argument('--coverage', help='file of coverage by test')
  parser.add_argument(
    '--skip', type=int, default=0, help='number of mutants to skip'
  )
  parser.add_argument('--seconds', type=float, default=300, help='time limit')
  given = parser.parse_args()
  files = [x for x in git('ls-files', *given.paths).split() if x[-3:] == '.py']
  pool = []
  for path in map(pathlib.Path, files):
    lines = changed_lines(path, given.since) if given.since else None
    pool += list(mutants_of(path, lines))
  random.Random(given.seed).shuffle(pool)
  drawn = pool[given.skip :][: given.number]
  by_line = tests_by_line(given.coverage) if given.coverage else {}
  tests_of_mutant = lambda mutant: (
    [own[:_MOST_TESTS]]
    if (own := by_line.get((str(mutant.path), mutant.node.lineno)))
    else tests_of(mutant.path)
  )
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name, 'copy')
    ignored = shutil.ignore_patterns('.git', '.venv', 'runs', '.jax_cache')
    shutil.copytree(REPOSITORY, folder, ignore=ignored)
    by_hash = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(folder, quiet=2, invalidation_mode=by_hash)
    # Most programs are the same as for earlier mutants.
    cache = REPOSITORY / '.jax_cache'
    cache.mkdir(exist_ok=True)
    (folder / cache.name).symlink_to(cache)
    outcomes = collections.Counter[str]()
    finders = set[str]()
    for mutant in drawn:
      healthy = (REPOSITORY / mutant.path).read_text()
      (folder / mutant.path).write_text(mutant.apply(healthy))
      found_by = failing(folder, tests_of_mutant(mutant), given.seconds)
      (folder / mutant.path).write_text(healthy)
      outcome = {'': 'SURVIVES', None: 'TOO LONG'}.get(found_by, 'found')
      outcomes[outcome] += 1
      finders |= {found_by} if found_by else set()
      print(f'{outcome:8}', mutant, found_by or '', flush=True)
    # A test that fails without a mutant has found nothing.
    each = [[test] for test in sorted(finders)]
    if broken := failing(folder, each, given.seconds):
      sys.exit(f'{broken} also fails without any mutant.')
  print(
    f'{outcomes["found"]} of {len(drawn)} mutants were found by a test, '
    f'{outcomes["TOO LONG"]} took too long; {len(pool)} are possible.'
  )


if __name__ == '__main__':
  main()
