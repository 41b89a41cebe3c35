"""Environments by name: SUITE or SUITE/VARIANT.

To add a suite, add an entry to `_SUITES`.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import difflib
import functools
import re

from disco_rl.environments import base
from disco_rl.environments import catch
from disco_rl.environments import gymnasium_adapter

Environment = base.JaxEnvironment | base.HostEnvironment
# (num_environments, seed) -> the environment.
Builder = Callable[[int, int], Environment]


@dataclasses.dataclass(frozen=True)
class _Suite:
  """Environments whose names begin alike.

  Attributes:
    form: of the names, for error messages.
    names: the full names that can be enumerated.
    builder: variant (None: the bare name of the suite) -> its builder, or None
      if there is no such variant. Builds nothing costly itself.
  """

  form: str
  names: Callable[[], Iterable[str]]
  builder: Callable[[str | None], Builder | None]


def make(name: str, num_environments: int, seed: int) -> Environment:
  """Makes an environment.

  Args:
    name: 'catch', 'catch/ROWSxCOLUMNS' or 'gymnasium/ID'.
    num_environments: B, of host environments; the others are batched by their
      callers.
    seed: of host environments; the others are given keys by their callers.

  Returns:
    The environment.

  Raises:
    ImportError: if the suite needs a package that is not installed.
    ValueError: if the name is unknown, `num_environments` < 1, or the
      environment is of a kind that is not supported.
  """
  if num_environments < 1:
    raise ValueError(f'num_environments must be >= 1, got {num_environments}.')
  return _builder(name)(num_environments, seed)


def validate(name: str) -> None:
  """Raises what `make` raises of the name, without making the environment."""
  _builder(name)


def names() -> tuple[str, ...]:
  """Returns valid names; of those that hold sizes, only the defaults."""
  return tuple(name for suite in _SUITES.values() for name in suite.names())


def _builder(name: str) -> Builder:
  suite, *variant = name.split('/', 1)
  builder = None
  if suite in _SUITES:
    builder = _SUITES[suite].builder(variant[0] if variant else None)
  if builder is None:
    nearest = difflib.get_close_matches(name, names())
    forms = ', '.join(suite.form for suite in _SUITES.values())
    raise ValueError(
      f'Unknown environment {name!r}. Nearest names: '
      f'{", ".join(nearest) or "none is near"}. Forms of names: {forms}.'
    )
  return builder


def _catch_builder(variant: str | None) -> Builder | None:
  if variant is None:
    environment = catch.Catch()
  elif size := re.fullmatch('([0-9]+)x([0-9]+)', variant):
    environment = catch.Catch(rows=int(size[1]), columns=int(size[2]))
  else:
    return None
  return lambda *_: environment


def _gymnasium_builder(variant: str | None) -> Builder | None:
  if variant is None or not gymnasium_adapter.is_registered(variant):
    return None
  return functools.partial(gymnasium_adapter.make, variant)


_SUITES = {
  'catch': _Suite(
    form='catch or catch/ROWSxCOLUMNS (catch/10x5)',
    names=lambda: ('catch',),
    builder=_catch_builder,
  ),
  'gymnasium': _Suite(
    form='gymnasium/ID (gymnasium/CartPole-v1)',
    names=lambda: (
      f'gymnasium/{env_id}' for env_id in gymnasium_adapter.registered_ids()
    ),
    builder=_gymnasium_builder,
  ),
}
