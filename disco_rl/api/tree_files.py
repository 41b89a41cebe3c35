"""Trees of arrays as npz files, one array for each leaf."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import copy
from typing import Any
from typing import NoReturn
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.runtime import files
from disco_rl.runtime import npz

_NO_NOTES: Mapping[str, np.ndarray] = {}


class Unpicklable:
  """What has compiled programs, and is saved to a file of arrays instead."""

  def __reduce__(self) -> NoReturn:
    """Raises TypeError: pickles cannot hold programs."""
    raise TypeError(
      f'A {type(self).__name__} cannot be pickled, nor sent to a process so: '
      'save it by its method `save`, and load the file there by '
      'disco_rl.load_policy(path).'
    )

  def __deepcopy__(self, memo: dict[int, Any]) -> Self:
    """Copies all attributes, as other objects are copied."""
    memo[id(self)] = new = object.__new__(type(self))
    new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return new


def save(
  path: files.PathLike,
  tree: Any,
  notes: Mapping[str, np.ndarray] = _NO_NOTES,
) -> None:
  """Writes a tree of arrays and PRNG keys, and further arrays, by `npz.write`.

  Args:
    path: of the file, ending in '.npz'.
    tree: of arrays.
    notes: arrays that are no part of the tree, by name.

  Raises:
    ValueError: the path does not end in '.npz'.
  """
  arrays = {
    name: np.asarray(files.to_data(leaf)) for name, leaf in leaves(tree).items()
  }
  npz.write(path, {**arrays, **notes})


def load(path: files.PathLike, like: Any, notes: Collection[str] = ()) -> Any:
  """Reads a tree.

  Args:
    path: of a file that `save` wrote.
    like: tree of arrays, or of their shapes, of the same structure.
    notes: names of arrays that are no part of the tree, if they are there.

  Returns:
    The tree, bit for bit as it was saved.

  Raises:
    OSError: there is no such file, or it cannot be opened.
    ArchiveError: the file is damaged, or holds another tree; the message names
      a leaf that differs.
  """
  expected = leaves(like)

  def check(headers: Mapping[str, npz.Header]) -> None:
    own = {name: headers[name] for name in headers if name not in notes}
    if difference := _difference(own, expected):
      raise npz.ArchiveError(_wrong(path, difference))

  return _rebuild(npz.read(path, check), like, '')


def load_part(
  path: files.PathLike,
  arrays: Mapping[str, np.ndarray],
  places: Sequence[str],
  like: Any,
) -> Any:
  """Picks a subtree from the arrays of a file.

  Args:
    path: of the file, for messages.
    arrays: all of the file, by name.
    places: where the subtree may be, as `jax.tree_util.keystr` writes it.
    like: the subtree's shapes.

  Returns:
    The subtree, at the first of these places that the file has.

  Raises:
    ArchiveError: there is none, or another one; the message names a leaf that
      differs.
  """
  for place in places:
    headers = {
      name: npz.Header(x.shape, x.dtype)
      for name, x in arrays.items()
      if name.startswith(place)
    }
    if headers:
      expected = {place + name: leaf for name, leaf in leaves(like).items()}
      if difference := _difference(headers, expected):
        raise npz.ArchiveError(_wrong(path, difference))
      return _rebuild(arrays, like, place)
  raise npz.ArchiveError(_wrong(path, f'has none of {", ".join(places)}'))


def leaves(tree: Any) -> dict[str, Any]:
  """The leaves by their paths, as `jax.tree_util.keystr` writes them."""
  return {
    jax.tree_util.keystr(where): leaf
    for where, leaf in jax.tree.leaves_with_path(tree)
  }


def _rebuild(arrays: Mapping[str, np.ndarray], like: Any, place: str) -> Any:
  """The tree whose leaves are the arrays at a place."""
  rebuilt = [
    files.from_data(jnp.asarray(arrays[place + name]), leaf)
    for name, leaf in leaves(like).items()
  ]
  return jax.tree.unflatten(jax.tree.structure(like), rebuilt)


def _wrong(path: files.PathLike, difference: str) -> str:
  return (
    f'{path} {difference}. Likely it was saved with another environment, '
    'another rule or other settings: load it with those.'
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
