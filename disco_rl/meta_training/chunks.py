"""Maps over the members of a group in chunks, to bound the memory."""

from collections.abc import Callable
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from disco_rl import types


def mapped(
  size: int, function: Callable[..., types.PyTree]
) -> Callable[..., types.PyTree]:
  """Maps a function over a chunk of `split`, which has no axis if size = 1."""
  return jax.vmap(function) if size > 1 else function


def map_chunk(
  size: int, function: Callable[..., types.PyTree]
) -> Callable[..., types.PyTree]:
  """Maps a function over a chunk of `size` members, trees [size, ...]."""
  if size > 1:
    return jax.vmap(function)
  one = lambda tree: jax.tree.map(lambda x: x[0], tree)
  return lambda *trees: jax.tree.map(
    lambda x: jnp.asarray(x)[None], function(*map(one, trees))
  )


def stack(trees: Sequence[types.PyTree]) -> types.PyTree:
  """Stacks trees of equal structure along a new leading axis."""
  return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def split(size: int, tree: types.PyTree) -> types.PyTree:
  """Splits [n, ...] -> [n / c, c, ...], without the axis c if c = 1."""
  if size == 1:
    return tree
  return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), tree)


def merge(size: int, tree: types.PyTree) -> types.PyTree:
  """Inverts `split`."""
  if size == 1:
    return tree
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)
