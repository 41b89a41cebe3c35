"""Which platform programs are made for, where they depend on it.

On every platform they compute the same, to rounding. Compilers differ in what
they are good at: steps that are written in two ways ask here which one to take.
"""

import contextlib
from typing import Any

import jax

# Part of the keys of JAX's caches: functions are traced anew where it changes.
_FOR_CPU: Any = jax.make_user_context()


def making_programs_for(platform: str) -> contextlib.AbstractContextManager:
  """A context in which programs are traced for another platform.

  Args:
    platform: 'cpu', 'cuda', 'rocm' or 'tpu'; no such device is needed.
  """
  return _FOR_CPU(platform == 'cpu')


def check_precision() -> None:
  """Raises ValueError if JAX computes with 64 bits, as programs here do not."""
  if jax.dtypes.canonicalize_dtype('float64') == 'float64':
    raise ValueError(
      'JAX computes with 64 bits, by its setting jax_enable_x64 or the '
      'variable JAX_ENABLE_X64: turn it off, as agents and rules compute with '
      '32.'
    )


def is_cpu() -> bool:
  """Whether programs are made for CPUs; outside a context, JAX's default."""
  if _FOR_CPU.value is not None:
    return _FOR_CPU.value
  return jax.default_backend() == 'cpu'  # noqa: TID251


def is_old_cpu() -> bool:
  """Whether they are made for CPUs by the XLA of JAX 0.10."""
  return is_cpu() and jax.__version_info__ < (0, 11)
