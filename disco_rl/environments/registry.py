"""Environments by name: FAMILY or FAMILY/VARIANT.

To add a family, add an entry to `_FAMILIES`. Lists of names are in suites.py.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import difflib
import functools
import re

from disco_rl.environments import atari
from disco_rl.environments import base
from disco_rl.environments import catch
from disco_rl.environments import dmlab
from disco_rl.environments import gridworld_tasks
from disco_rl.environments import gymnasium_adapter
from disco_rl.environments import procgen
from disco_rl.environments import suites

Environment = base.JaxEnvironment | base.HostEnvironment
# (num_environments, seed) -> the environment.
Builder = Callable[[int, int], Environment]


@dataclasses.dataclass(frozen=True)
class _Family:
  """Environments whose names begin alike.

  Attributes:
    form: of the names, for error messages.
    names: the full names that can be enumerated.
    builder: variant (None: the bare name of the family) -> its builder, or None
      if there is no such variant. Builds nothing costly itself, but raises
      ImportError if a package is not installed.
  """

  form: str
  names: Callable[[], Iterable[str]]
  builder: Callable[[str | None], Builder | None]


def make(name: str, num_environments: int, seed: int) -> Environment:
  """Makes an environment.

  Args:
    name: such as 'catch' or 'atari/breakout'; any other name raises an error
      that lists all forms.
    num_environments: B, of host environments; the others are batched by their
      callers.
    seed: of host environments; the others are given keys by their callers.

  Returns:
    The environment.

  Raises:
    ImportError: if the environment needs a package that is not installed.
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
  """Returns names, also of what needs packages that are not installed.

  Of names that hold sizes, only the defaults; of Gymnasium, what is registered.
  """
  return tuple(name for family in _FAMILIES.values() for name in family.names())


def _builder(name: str) -> Builder:
  family, *variant = name.split('/', 1)
  builder = None
  if family in _FAMILIES:
    builder = _FAMILIES[family].builder(variant[0] if variant else None)
  if builder is None:
    raise ValueError(_unknown(name))
  return builder


def _unknown(name: str) -> str:
  if name in suites.SUITES:
    return (
      f'{name!r} is a suite of {len(suites.SUITES[name])} environments, where '
      'the name of one is wanted: disco_rl.environments.suites.expand lists '
      'them.'
    )
  nearest = difflib.get_close_matches(name, (*names(), *suites.SUITES))
  forms = ', '.join(family.form for family in _FAMILIES.values())
  return (
    f'Unknown environment {name!r}. Nearest names: '
    f'{", ".join(nearest) or "none is near"}. Forms of names: {forms}.'
  )


def _catch_builder(variant: str | None) -> Builder | None:
  if variant is None:
    environment = catch.Catch()
  elif size := re.fullmatch('([0-9]+)x([0-9]+)', variant):
    environment = catch.Catch(rows=int(size[1]), columns=int(size[2]))
  else:
    return None
  return lambda *_: environment


def _gridworld_builder(variant: str | None) -> Builder | None:
  environment = None if variant is None else gridworld_tasks.make(variant)
  return None if environment is None else lambda *_: environment


def _gymnasium_builder(variant: str | None) -> Builder | None:
  if variant is None or not gymnasium_adapter.is_registered(variant):
    return None
  return functools.partial(gymnasium_adapter.make, variant)


def _atari_builder(variant: str | None) -> Builder | None:
  if variant not in atari.GAMES:
    return None
  atari.import_package()
  return functools.partial(atari.make, variant)


def _procgen_builder(variant: str | None) -> Builder | None:
  game = (variant or '').removeprefix('easy/')
  if game not in procgen.GAMES:
    return None
  procgen.import_package()
  preprocessing = procgen.HARD if game == variant else procgen.EASY
  return functools.partial(procgen.make, game, preprocessing=preprocessing)


def _dmlab_builder(variant: str | None) -> Builder | None:
  if variant not in dmlab.LEVELS:
    return None
  dmlab.import_package()
  return functools.partial(dmlab.make, variant)


_FAMILIES = {
  'catch': _Family(
    form='catch or catch/ROWSxCOLUMNS (catch/10x5)',
    names=lambda: ('catch',),
    builder=_catch_builder,
  ),
  'gridworld': _Family(
    form='gridworld/00 and gridworld/held_out_00, and further numbers',
    names=gridworld_tasks.names,
    builder=_gridworld_builder,
  ),
  'gymnasium': _Family(
    form='gymnasium/ID (gymnasium/CartPole-v1)',
    names=lambda: (
      f'gymnasium/{env_id}' for env_id in gymnasium_adapter.registered_ids()
    ),
    builder=_gymnasium_builder,
  ),
  'atari': _Family(
    form='atari/GAME (atari/breakout)',
    names=lambda: suites.SUITES['atari57'],
    builder=_atari_builder,
  ),
  'procgen': _Family(
    form='procgen/GAME or procgen/easy/GAME (procgen/bigfish)',
    names=lambda: (
      *suites.SUITES['procgen16'],
      *(f'procgen/easy/{game}' for game in procgen.GAMES),
    ),
    builder=_procgen_builder,
  ),
  'dmlab': _Family(
    form='dmlab/LEVEL (dmlab/rooms_watermaze)',
    names=lambda: suites.SUITES['dmlab30'],
    builder=_dmlab_builder,
  ),
}
