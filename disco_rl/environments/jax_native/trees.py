"""Trees of arrays in JAX environments: types, and costly resets."""

from collections.abc import Callable
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from disco_rl import types

# About one in this number of environments ends its episode in a step.
_ENVIRONMENTS_PER_END = 64
# On CPUs, jaxlib 0.10.2 computes some reductions wrongly if they have more than
# 32,768 elements (issue 39103 of JAX): in Craftax, with nine worlds or more.
_MOST_AT_ONCE = 8


def strong_types(tree: types.PyTree) -> types.PyTree:
  """Returns a tree of arrays without weak types, like those of Python numbers.

  Weak types are promoted, so an environment's second step would have different
  types than the first, and would be compiled again.
  """
  return jax.tree.map(
    lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree
  )


def make_few_at_once(
  make: Callable[..., types.PyTree], *args: types.PyTree
) -> types.PyTree:
  """Returns `make(*args)`; under `jax.vmap`, makes few at a time.

  Args:
    make: A function as in `replace_where`, which does not return PRNG keys.
    *args: Trees of arrays.
  """
  blank = jax.tree.map(
    lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make, *args)
  )
  return replace_where(make, jnp.bool_(True), blank, *args)


def replace_where(
  make: Callable[..., types.PyTree],
  is_replaced: types.Array,
  old: types.PyTree,
  *args: types.PyTree,
) -> types.PyTree:
  """Replaces `old` by `make(*args)`, calling `make` only where needed.

  `jnp.where`, and under `jax.vmap` also `jax.lax.cond`, would make everything
  and discard most of it. Here the time is proportional to the number of
  replacements, for any number of mapped axes, with the same results.

  Args:
    make: args -> a tree like `old`. It must not close over traced arrays.
    is_replaced: Whether to replace, [] bool.
    old: A tree of arrays without PRNG keys.
    *args: Trees of arrays.

  Returns:
    `make(*args)` in the types of `old` if `is_replaced`, otherwise `old`.
  """

  @jax.custom_batching.custom_vmap
  def rows(*trees: types.PyTree) -> types.PyTree:
    return _replace_rows(make, *trees)

  @rows.def_vmap
  def _(
    size: int, is_mapped: Sequence[types.PyTree], *trees: types.PyTree
  ) -> types.PyTree:
    mapped = jax.tree.map(
      lambda x, has_axis: (
        x if has_axis else jnp.broadcast_to(x, (size, *x.shape))
      ),
      trees,
      tuple(is_mapped),
    )
    # Both axes become one, even if a further axis is mapped over.
    joined = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), mapped)
    new = jax.tree.map(
      lambda x: x.reshape(size, -1, *x.shape[1:]), rows(*joined)
    )
    return new, jax.tree.map(lambda _: True, new)

  single = jax.tree.map(
    lambda x: jnp.asarray(x)[None], (is_replaced, old, args)
  )
  return jax.tree.map(lambda x: x[0], rows(*single))


def _replace_rows(
  make: Callable[..., types.PyTree],
  is_replaced: types.Array,
  old: types.PyTree,
  args: tuple[types.PyTree, ...],
) -> types.PyTree:
  """Implements `replace_where` for leaves with a leading axis B."""
  (size,) = is_replaced.shape
  num_at_once = min(_MOST_AT_ONCE, max(1, size // _ENVIRONMENTS_PER_END))

  def replace_some(carry: types.PyTree) -> types.PyTree:
    is_pending, rows = carry
    # Filled with `size`, which is not a row.
    (index,) = jnp.nonzero(is_pending, size=num_at_once, fill_value=size)
    made = jax.vmap(make)(*jax.tree.map(lambda x: x[index], args))
    put = lambda x, y: x.at[index].set(y, mode='drop')
    return put(is_pending, False), jax.tree.map(put, rows, made)

  _, rows = jax.lax.while_loop(
    lambda carry: jnp.any(carry[0]), replace_some, (is_replaced, old)
  )
  return rows
