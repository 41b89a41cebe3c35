"""Suites: lists of names of environments, for populations and evaluations.

The docstring of families.py describes how to add one.
"""

import itertools
from typing import Annotated

from disco_rl import config as config_lib
from disco_rl.environments import families

# Name of a suite -> the names of its environments, for `registry.make`.
SUITES = {
  name: names
  for family in families.FAMILIES.values()
  for name, names in family.suites.items()
}


def expand(name: str) -> tuple[str, ...]:
  """Returns the names of a suite's environments; other names are unchanged."""
  return SUITES.get(name, (name,))


def _expand_all(names: object) -> object:
  """Replaces suites by their environments."""
  if not isinstance(names, tuple) or not all(isinstance(x, str) for x in names):
    return names  # Invalid; the check of the setting reports it.
  return tuple(itertools.chain(*map(expand, names)))


def listed(names: str) -> tuple[str, ...]:
  """Splits names of environments and suites at commas, and expands them."""
  return config_lib.converted(names, Names)


# A setting: names of environments and suites, which are expanded.
Names = Annotated[tuple[str, ...], config_lib.Converter(_expand_all)]
