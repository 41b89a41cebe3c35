"""Trees of arrays as npz files, one array for each leaf."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.runtime import files
from disco_rl.runtime import npz


def save(path: files.PathLike, tree: Any) -> None:
  """Writes a tree of arrays and PRNG keys; see `npz.write`."""
  npz.write(
    path,
    {
      jax.tree_util.keystr(where): np.asarray(files.to_data(leaf))
      for where, leaf in jax.tree.leaves_with_path(tree)
    },
  )


def load(path: files.PathLike, like: Any) -> Any:
  """Reads a tree.

  Args:
    path: of a file that `save` wrote.
    like: tree of arrays, or of their shapes, of the same structure.

  Returns:
    The tree, bit for bit as it was saved.

  Raises:
    OSError: there is no such file, or it cannot be opened.
    ArchiveError: the file is damaged, or holds another tree; the message names
      a leaf that differs.
  """
  paths_and_leaves, structure = jax.tree.flatten_with_path(like)
  expected = {
    jax.tree_util.keystr(where): leaf for where, leaf in paths_and_leaves
  }

  def check(headers: Mapping[str, npz.Header]) -> None:
    if difference := _difference(headers, expected):
      raise npz.ArchiveError(
        f'{path} {difference}. Likely it was saved with another environment, '
        'another rule or other settings: load it with those.'
      )

  arrays = npz.read(path, check)
  return jax.tree.unflatten(
    structure,
    [
      files.from_data(jnp.asarray(arrays[name]), leaf)
      for name, leaf in expected.items()
    ],
  )


def _difference(
  headers: Mapping[str, npz.Header], expected: Mapping[str, Any]
) -> str:
  """The first array that differs, in words; empty if none does."""
  for name in sorted(expected.keys() ^ headers.keys()):
    return f'{"lacks" if name in expected else "has"} {name}'
  for name, leaf in expected.items():
    data = jax.eval_shape(files.to_data, leaf)
    if headers[name] != (data.shape, data.dtype):
      shape, dtype = headers[name]
      return (
        f'has {name} of {dtype}{list(shape)} in place of '
        f'{data.dtype}{list(data.shape)}'
      )
  return ''
