"""Breaks the code in small ways, and prints which faults no test finds.

  python tests/mutants.py disco_rl/maths --number=20 --seed=0

A mutant is one edit of the syntax tree: another operator, comparison, constant
or slice, a negated condition, or an argument or a statement left out. It is
found if a test fails; if tests neither fail nor end within `--seconds`, it may
hang, or the machine may be busy. The tests of `disco_rl/PACKAGE/MODULE.py` are
`tests/PACKAGE/MODULE_test.py`; if it finds nothing, the tests that import the
module, then those in the folder. A mutant that survives shows a missing test,
unless no caller can see it. A mutant takes seconds to minutes.
"""

import argparse
import ast
import collections
from collections.abc import Iterator
import copy
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

_PAIRS = (
  *((ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)),
  *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq)),
  *((ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
)
_SWAPPED: dict[type, Any] = {a: b for p in _PAIRS for a, b in (p, p[::-1])}
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
    place = f'{self.path}:{self.node.lineno}'
    return f'{place} {ast.unparse(self.node):.60} -> {self.replacement:.60}'


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
  children = ast.iter_child_nodes(tree)
  if isinstance(tree, ast.FunctionDef):
    children, inside = iter(tree.body), True
  for child in children:
    if not isinstance(child, _SKIPPED):
      if inside:
        yield child
      yield from nodes(child, inside)


def mutants_of(path: pathlib.Path) -> Iterator[Mutant]:
  """Yields all mutants of a file."""
  for node in nodes(ast.parse(path.read_text())):
    # Only the condition of an `if` is replaced.
    place = node.test if isinstance(node, ast.If) else node
    for variant in variants(node):
      text = variant if isinstance(variant, str) else ast.unparse(variant)
      if isinstance(place, ast.expr):
        bare = isinstance(place, ast.Constant | ast.Slice)
        yield Mutant(path, place, text if bare else f'({text})')
      elif isinstance(place, ast.stmt):
        yield Mutant(path, place, text)


def modules(folder: str, ending: str = '.py') -> list[pathlib.Path]:
  """Returns the modules in a folder, or the module of that path."""
  path = pathlib.Path(folder)
  return sorted(path.rglob(f'*{ending}')) or [path]


def tests_of(path: pathlib.Path) -> list[str]:
  """Returns the tests of a module, those most likely to fail first."""
  folder = pathlib.Path('tests', *path.parts[1:-1])
  folder = next(x for x in (folder, *folder.parents) if x.exists())
  imported = rf'from {".".join(path.parts[:-1])} import {path.stem}\b'
  named = (folder / f'{path.stem}_test.py', folder / path.stem)
  all_tests = modules('tests', '_test.py')
  importing = [x for x in all_tests if re.search(imported, x.read_text())]
  tests = dict.fromkeys((*named, *importing, folder))
  return [str(x) for x in tests if x.exists()]


def run(folder: pathlib.Path, tests: list[str], seconds: float) -> str | None:
  """Returns the first test that fails, '' if none, or None after a timeout."""
  process = subprocess.Popen(
    [sys.executable, '-B', '-m', 'pytest', '-x', '-q', '--tb=no', *tests],
    cwd=folder,
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  try:
    output, _ = process.communicate(timeout=seconds)
  except subprocess.TimeoutExpired:
    # Also kills what it has started, which would keep its output open.
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return None
  failed = re.search(r'(?m)^(?:FAILED|ERROR) ([^\s\[]+)', output)
  return failed[1] if failed else tests[0] if process.returncode else ''


def main() -> None:
  """Prints one line for each mutant, with a test that finds it, and a count."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('paths', nargs='+')
  parser.add_argument('--number', type=int, default=20)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--seconds', type=float, default=600, help='time limit')
  given = parser.parse_args()
  files = [path for x in given.paths for path in modules(x)]
  pool = [mutant for path in files for mutant in mutants_of(path)]
  drawn = random.Random(given.seed).sample(pool, min(given.number, len(pool)))
  finders = collections.Counter[str | None]()
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name, 'copy')
    ignored = shutil.ignore_patterns('.git', '.venv', 'runs', '.jax_cache')
    shutil.copytree('.', folder, ignore=ignored)
    # Most programs are the same as for earlier mutants.
    cache = pathlib.Path('.jax_cache').resolve()
    cache.mkdir(exist_ok=True)
    (folder / cache.name).symlink_to(cache)
    for mutant in drawn:
      healthy = mutant.path.read_text()
      (folder / mutant.path).write_text(mutant.apply(healthy))
      found_by = run(folder, tests_of(mutant.path), given.seconds)
      (folder / mutant.path).write_text(healthy)
      finders[found_by] += 1
      outcome = {'': 'SURVIVES', None: 'TOO LONG'}.get(found_by, 'found')
      print(f'{outcome:8}', mutant, found_by or '', flush=True)
    tests = sorted(filter(None, finders))
    if tests and (broken := run(folder, tests, given.seconds)):
      sys.exit(f'{broken} also fails without any mutant.')
  print(
    f'{len(drawn) - finders[""] - finders[None]} of {len(drawn)} mutants were '
    f'found by a test, {finders[None]} took too long; {len(pool)} are possible.'
  )


if __name__ == '__main__':
  main()
