"""Trees of arrays as npz files, one array for each leaf; no pickles."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.runtime import files


def save(path: files.PathLike, tree: Any) -> None:
  """Writes a tree; the file appears whole or not at all.

  Args:
    path: of the file, ending in '.npz'; folders on the way to it are made.
    tree: of arrays and PRNG keys.

  Raises:
    ValueError: the path does not end in '.npz'.
  """
  target = pathlib.Path(path)
  if target.suffix != '.npz':
    raise ValueError(f'{target}: the name of the file must end in .npz.')
  arrays: dict[str, Any] = {
    jax.tree_util.keystr(where): np.asarray(files.to_data(leaf))
    for where, leaf in jax.tree.leaves_with_path(tree)
  }
  target.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(target) as temporary, temporary.open('wb') as file:
    np.savez(file, **arrays)


def load(path: files.PathLike, like: Any) -> Any:
  """Reads a tree.

  Args:
    path: of a file that `save` wrote.
    like: tree of arrays, or of their shapes, of the same structure.

  Returns:
    The tree, bit for bit as it was saved.

  Raises:
    OSError: there is no such file, or it cannot be read.
    ValueError: the file is damaged, or holds another tree; the message names a
      leaf that differs.
  """
  arrays = _read(path)
  paths_and_leaves, structure = jax.tree.flatten_with_path(like)
  wanted = {
    jax.tree_util.keystr(where): leaf for where, leaf in paths_and_leaves
  }
  for where in sorted(wanted.keys() ^ arrays.keys()):
    problem = 'lacks' if where in wanted else 'has'
    raise ValueError(_differs(path, f'{problem} {where}'))
  for where, leaf in wanted.items():
    data = jax.eval_shape(files.to_data, leaf)
    found = arrays[where]
    if (found.shape, found.dtype) != (data.shape, data.dtype):
      raise ValueError(
        _differs(
          path,
          f'has {where} of {found.dtype}{list(found.shape)} in place of '
          f'{data.dtype}{list(data.shape)}',
        )
      )
  return jax.tree.unflatten(
    structure,
    [
      files.from_data(jnp.asarray(arrays[where]), leaf)
      for where, leaf in wanted.items()
    ],
  )


def _differs(path: files.PathLike, how: str) -> str:
  return (
    f'{path} {how}. Likely it was saved with another environment, another rule '
    'or other settings: load it with those.'
  )


def _read(path: files.PathLike) -> dict[str, np.ndarray]:
  # Opened here: NumPy leaves files open whose content it refuses.
  with open(path, 'rb') as file:
    try:
      with np.load(file, allow_pickle=False) as archive:  # noqa: TID251
        return {name: archive[name] for name in archive.files}
    # A damaged archive raises nearly anything.
    except Exception as error:
      raise ValueError(
        f'{path} is not a file that was saved here, or is damaged: {error!r}'
      ) from error
