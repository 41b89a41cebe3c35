"""Haiku modules of agents and of the meta-network.

Raises:
  ImportError: Python runs with -O, without assertions.
"""

if not __debug__:
  raise ImportError(
    'Python runs without assertions, by -O or PYTHONOPTIMIZE, but Haiku counts '
    'its modules in assertions: parameters would have other names. Leave -O '
    'out, and unset PYTHONOPTIMIZE.'
  )
