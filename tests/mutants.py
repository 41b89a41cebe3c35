"""Applies each mutant of mutants.toml to a copy, and prints which survive.

  python tests/mutants.py                  # all of them, in about half an hour
  python tests/mutants.py --only=outer     # those whose name or file has this

A mutant is one small fault: a snippet that occurs once in a file and what takes
its place. It is killed if one of its tests fails, and only if these tests pass
on the code as it is. Exits with 1 where a mutant survives.
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
MUTANTS = REPOSITORY / 'tests' / 'mutants.toml'


def main() -> None:
  """Prints one line for each mutant, and a count."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--only', default='')
  only = parser.parse_args().only
  mutants = [
    mutant
    for mutant in tomllib.loads(MUTANTS.read_text())['mutant']
    if only in mutant['name'] or only in mutant['file']
  ]
  with tempfile.TemporaryDirectory() as folder:
    copy = copied(pathlib.Path(folder) / 'copy')
    healthy = sorted({test for mutant in mutants for test in mutant['tests']})
    if failure := first_failure(copy, healthy):
      sys.exit(f'Without any mutant this does not pass: {failure}')
    survivors = sum(not is_killed(copy, mutant) for mutant in mutants)
  print(f'{len(mutants) - survivors} of {len(mutants)} mutants are killed.')
  sys.exit(survivors > 0)


def copied(target: pathlib.Path) -> pathlib.Path:
  """Copies the files that git knows; the compilation cache is shared."""
  listed = subprocess.run(
    ['git', 'ls-files'], cwd=REPOSITORY, capture_output=True, check=True
  )
  for name in listed.stdout.decode().splitlines():
    if (REPOSITORY / name).is_file():
      (target / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(REPOSITORY / name, target / name)
  (REPOSITORY / '.jax_cache').mkdir(exist_ok=True)
  (target / '.jax_cache').symlink_to(REPOSITORY / '.jax_cache')
  return target


def is_killed(copy: pathlib.Path, mutant: Mapping[str, str]) -> bool:
  """Applies a mutant, runs its tests, and restores the file."""
  path = copy / mutant['file']
  healthy = path.read_text()
  count = healthy.count(mutant['old'])
  if count != 1:
    sys.exit(
      f'{mutant["name"]}: its snippet occurs {count} times in '
      f'{mutant["file"]}, expected once. Bring tests/mutants.toml up to date.'
    )
  path.write_text(healthy.replace(mutant['old'], mutant['new']))
  failure = first_failure(copy, mutant['tests'])
  path.write_text(healthy)
  print(f'{failure or "SURVIVES":90} {mutant["name"]}', flush=True)
  return bool(failure)


def first_failure(copy: pathlib.Path, tests: Sequence[str]) -> str:
  """Name of the first test that fails; '' where all pass."""
  command = (
    sys.executable,
    '-B',
    '-m',
    'pytest',
    '-x',
    '-q',
    '--tb=no',
    *tests,
  )
  result = subprocess.run(command, cwd=copy, capture_output=True, text=True)
  # A test that is skipped would let every mutant survive.
  marks = ('FAILED ', 'ERROR ', 'SKIPPED ')
  lines = [x for x in result.stdout.splitlines() if x.startswith(marks)]
  if not lines and result.returncode != 0:
    # A mutant that cannot even be imported is killed by what imports it.
    return f'{tests[0]} (not collected)'
  return ' '.join(lines[:1]).removeprefix('FAILED ').split(' - ')[0]


if __name__ == '__main__':
  main()
