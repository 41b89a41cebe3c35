"""Damages files of runs, and looks for damage that is used silently.

  python -m benchmarks.damage --flips=300 --workdir=runs/damage

In copies of the folder of a run, one bit of a file is flipped, or a file or a
folder is deleted, emptied or cut in half. The run is then continued. It must
end with the results of a whole one, or report what has happened: by a warning,
or by an error of one line. Otherwise the exit status is 1.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import io
import pathlib
import random
import shutil
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging

from benchmarks import short_runs
from disco_rl.runtime import checkpointing
from disco_rl.runtime import workdirs

_FLIPS = flags.DEFINE_integer('flips', 300, 'Number of bits, over all kinds.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the choice of bits.')
_KINDS = flags.DEFINE_multi_enum(
  'kind', list(short_runs.KINDS), list(short_runs.KINDS), 'Kinds of runs.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the runs; must not exist.', required=True
)

_STEPS = 2 * short_runs.CHECKPOINT_EVERY
_MORE = _STEPS + short_runs.CHECKPOINT_EVERY
# Nobody reads them, or whatever they hold.
_UNREAD = ('.lock', '.owner', 'curves.png', 'tensorboard')

# Launchers print them in one line.
_EXPECTED = (workdirs.WorkdirError, checkpointing.CheckpointError, OSError)

# A kind of damage, and the function that does it.
Damage = tuple[str, Callable[[pathlib.Path], None]]


def main(_: Sequence[str]) -> None:
  """Damages a run of each kind."""
  logging.set_verbosity(logging.WARNING)
  root = pathlib.Path(_WORKDIR.value)
  root.mkdir(parents=True)
  flips = _FLIPS.value // len(_KINDS.value)
  silent = [
    case for name in _KINDS.value for case in _damage_all(name, root, flips)
  ]
  for case in silent:
    print(f'SILENT: {case}')
  if silent:
    sys.exit(f'{len(silent)} cases of damage changed results silently.')


def _damage_all(name: str, root: pathlib.Path, flips: int) -> list[str]:
  """Returns the cases in which results changed silently."""
  kind = short_runs.KINDS[name]
  whole, expected = root / name, root / f'{name}_continued'
  short_runs.run(kind, whole, _STEPS)
  shutil.copytree(whole, expected)
  short_runs.run(kind, expected, _MORE)
  counts: collections.Counter[str] = collections.Counter()
  silent = []
  # On the device a run keeps no state, but compiled programs.
  reused = kind.make(_MORE) if name.endswith('_device') else None
  _check_undamaged(reused or kind.make(_MORE), whole, expected)
  for path, (what, damage) in _cases(whole, flips):
    run = reused or kind.make(_MORE)
    copy = shutil.copytree(whole, root / 'copy')
    damage(copy / path)
    outcome = _continue(run, copy, expected)
    shutil.rmtree(copy)
    counts[f'{what}: {outcome}'] += 1
    print(f'{name}: {path} {what}: {outcome}', file=sys.stderr, flush=True)
    if outcome == 'SILENT':
      silent.append(f'{name}: {path} {what}')
  for case, count in sorted(counts.items()):
    print(f'{name}: {count:4} {case}', flush=True)
  return silent


def _check_undamaged(
  run: Callable[[pathlib.Path], Any],
  whole: pathlib.Path,
  expected: pathlib.Path,
) -> None:
  """Raises RuntimeError if not even a whole run can be continued.

  Every error would then count as one that damage has caused.
  """
  copy = shutil.copytree(whole, whole.with_name('copy'))
  run(copy)
  different = short_runs.differences(copy, expected)
  shutil.rmtree(copy)
  if different:
    raise RuntimeError(
      f'without damage {", ".join(different)} in {whole} would differ from '
      f'{expected}, too.'
    )


def _cases(
  whole: pathlib.Path, flips: int
) -> Iterator[tuple[pathlib.Path, Damage]]:
  """Paths within a folder, and what is done to them."""
  rng = random.Random(_SEED.value)
  paths = sorted(path.relative_to(whole) for path in whole.rglob('*'))
  paths = [path for path in paths if path.parts[0] not in _UNREAD]
  full = [path for path in paths if _is_file(whole / path)]
  for _ in range(flips):
    yield rng.choice(full), ('flipped', lambda path: _flip(path, rng))
  for path in paths:
    yield path, ('deleted', _delete)
    if path in full:
      yield path, ('emptied', _empty)
      yield path, ('cut', _cut)


def _is_file(path: pathlib.Path) -> bool:
  return path.is_file() and path.stat().st_size > 0


def _flip(path: pathlib.Path, rng: random.Random) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


def _delete(path: pathlib.Path) -> None:
  shutil.rmtree(path) if path.is_dir() else path.unlink()


def _empty(path: pathlib.Path) -> None:
  path.write_bytes(b'')


def _cut(path: pathlib.Path) -> None:
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])


def _continue(
  run: Callable[[pathlib.Path], Any],
  workdir: pathlib.Path,
  expected: pathlib.Path,
) -> str:
  """What happens if the run is continued in a damaged folder."""
  output = io.StringIO()
  try:
    with contextlib.redirect_stderr(output):
      run(workdir)
  except _EXPECTED as error:
    return f'error ({type(error).__name__})'
  is_reported = 'warning: ' in output.getvalue()
  if not short_runs.differences(workdir, expected):
    return 'mended and reported' if is_reported else 'no effect'
  return 'reported' if is_reported else 'SILENT'


if __name__ == '__main__':
  app.run(main)
