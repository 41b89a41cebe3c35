"""Measures the code of revisions of this repository, for whoever reads it.

  python -m benchmarks.house v0.2.0 HEAD

prints a column for each revision. Code lines are those with neither docstring,
comment nor blank alone.
"""

import ast
from collections.abc import Mapping
import io
import re
import subprocess
import sys
import tokenize

CORE = ('maths', 'networks', 'update_rules', 'agent', 'meta_training')
# Of what a member or an environment is, told by its type or by a flag.
_KIND = re.compile(
  r'isinstance\(.*(Host|Jax)(Environment|Training|Group)|is_on_host'
  r'|isinstance\(.*(ActorState|DeviceActing|DeviceTraining|DeviceGroup)'
  r"|kind\b.*[=!]= '(host|device)'"
)
_LOOSE = re.compile(r'\b(Any|PyTree)\b')
_SKIPPED = {
  *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
  *(tokenize.DEDENT, tokenize.ENDMARKER),
}


def read(revision: str) -> dict[str, str]:
  """Returns the text of all modules of a revision, by path."""
  paths = _git('ls-tree', '-r', '--name-only', revision).splitlines()
  return {
    path: _git('show', f'{revision}:{path}')
    for path in paths
    if path.endswith('.py')
  }


def _git(*arguments: str) -> str:
  run = subprocess.run(
    ['git', *arguments], check=True, capture_output=True, text=True
  )
  return run.stdout


def code(text: str) -> list[str]:
  """Returns the lines of a module that are code."""
  docstrings: set[int] = set()
  for node in ast.walk(ast.parse(text)):
    if (
      isinstance(node, ast.Expr)
      and isinstance(node.value, ast.Constant)
      and isinstance(node.value.value, str)
    ):
      docstrings |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
  lines: set[int] = set()
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type not in _SKIPPED:
      lines |= {*range(token.start[0], token.end[0] + 1)}
  every = text.splitlines()
  return [every[number - 1] for number in sorted(lines - docstrings)]


def methods_of_group(text: str) -> tuple[int, int]:
  """Counts the abstract methods of `population.Group`, and all public ones."""
  (group,) = (
    node
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.ClassDef) and node.name == 'Group'
  )
  methods = [
    node
    for node in group.body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith('_')
  ]
  is_abstract = lambda method: any(
    'abstractmethod' in ast.unparse(x) for x in method.decorator_list
  )
  return sum(map(is_abstract, methods)), len(methods)


def measure(modules: Mapping[str, str]) -> dict[str, str]:
  """Measures a revision, given its modules by path."""
  package = {x: modules[x] for x in modules if x.startswith('disco_rl/')}
  lines = {path: code(text) for path, text in package.items()}
  total = sum(map(len, lines.values()))
  count = lambda *folders: sum(
    len(lines[path]) for path in lines if path.split('/')[1] in folders
  )
  asking = {path: sum(map(_asks, lines[path])) for path in lines}
  loose = sum(
    len(_LOOSE.findall(line))
    for own in lines.values()
    for line in own
    if not line.lstrip().startswith(('import ', 'from '))
  )
  abstract, public = methods_of_group(
    package['disco_rl/meta_training/population.py']
  )
  core, environments = count(*CORE), count('environments')
  return {
    'abstract methods of Group (all)': f'{abstract} ({public})',
    'lines that ask for the kind of an environment': (
      f'{sum(asking.values())} in {sum(map(bool, asking.values()))} files'
    ),
    'modules above 400 lines': str(
      sum(text.count('\n') > 400 for text in package.values())
    ),
    'Any and PyTree per 1,000 code lines': f'{1000 * loose / total:.1f}',
    'code lines of the core': f'{core:,}',
    'code lines of environments': f'{environments:,}',
    'code lines of the rest of the package': f'{total - core - environments:,}',
    'code lines of tests': f'{_code_of_tests(modules):,}',
  }


def _asks(line: str) -> bool:
  """Returns whether a line asks for the kind of an environment."""
  return _KIND.search(line) is not None


def _code_of_tests(modules: Mapping[str, str]) -> int:
  return sum(
    len(code(text))
    for path, text in modules.items()
    if path.startswith('tests/')
  )


def main() -> None:
  """Prints a table with a column for each revision in the arguments."""
  revisions = sys.argv[1:] or ['HEAD']
  columns = [measure(read(revision)) for revision in revisions]
  print('| |', ' | '.join(revisions), '|')
  print('|---' * (1 + len(revisions)) + '|')
  for name in columns[0]:
    print(f'| {name} |', ' | '.join(x[name] for x in columns), '|')


if __name__ == '__main__':
  main()
