"""The platform that programs are compiled for.

Programs compute the same on every platform, up to rounding. Some steps have two
implementations, because compilers differ in their strengths; the functions here
tell which one to use.
"""

import contextlib

import jax

# Part of the keys of JAX's caches: functions are traced again when it changes.
_FOR_CPU = jax.make_user_context()

# Settings of JAX for finding faults -> values that stop these programs.
_REFUSALS = {
  'jax_numpy_rank_promotion': ('raise',),
  'jax_numpy_dtype_promotion': ('strict',),
  'jax_transfer_guard_host_to_device': ('disallow', 'disallow_explicit'),
  'jax_transfer_guard_device_to_host': ('disallow', 'disallow_explicit'),
}


def making_programs_for(platform: str) -> contextlib.AbstractContextManager:
  """Returns a context in which programs are traced for another platform.

  Args:
    platform: 'cpu', 'cuda', 'rocm' or 'tpu'; the device need not exist.
  """
  return _FOR_CPU(platform == 'cpu')


def check_settings() -> None:
  """Checks settings of JAX, before they stop programs with obscure errors.

  Raises:
    ValueError: The 64-bit mode is on, but programs here use 32 bits; or JAX
      refuses what they do implicitly, such as moving numbers to the device.
  """
  if jax.dtypes.canonicalize_dtype('float64') == 'float64':
    raise ValueError(
      'JAX computes with 64 bits, because its setting jax_enable_x64 or the '
      'variable JAX_ENABLE_X64 is on: turn it off, because agents and rules '
      'compute with 32 bits.'
    )
  for name, refusals in _REFUSALS.items():
    # Older versions of JAX may lack a setting, newer ones drop it.
    if (value := getattr(jax.config, name, None)) in refusals:
      raise ValueError(
        f'JAX refuses implicit operations, because its setting {name} is '
        f'{value!r}: turn it off here, because programs of this library use '
        'them.'
      )


def is_cpu() -> bool:
  """Returns whether programs are made for CPUs, JAX's backend by default."""
  if _FOR_CPU.value is not None:
    return _FOR_CPU.value
  return jax.default_backend() == 'cpu'  # noqa: TID251


def is_old_cpu() -> bool:
  """Returns whether programs are made for CPUs by an old version of XLA."""
  return is_cpu() and has_old_cpu_compiler()


def has_old_cpu_compiler() -> bool:
  """Returns whether JAX comes with the CPU compiler of JAX 0.10 or older."""
  return jax.__version_info__ < (0, 11)
