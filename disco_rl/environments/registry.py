"""Environments by name: FAMILY or FAMILY/VARIANT.

To add a family, add an entry to `_FAMILIES`. Lists of names are in suites.py.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import difflib
import functools
import re
from typing import Annotated
from typing import Any
from typing import Literal

from disco_rl.environments import base
from disco_rl.environments import suites
from disco_rl.environments.host import atari
from disco_rl.environments.host import crafter_adapter
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import nethack
from disco_rl.environments.host import procgen
from disco_rl.environments.host import timeouts
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import craftax_adapter
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.environments.jax_native import sokoban
from disco_rl.runtime import config_checks

Environment = base.JaxEnvironment | base.HostEnvironment
# Where environments step: `base.JaxEnvironment` or `base.HostEnvironment`.
Kind = Literal['device', 'host']
# Fields of a family's `Preprocessing` that differ from its defaults.
Changes = Mapping[str, Any]


def _check_preprocessing(preprocessing: Any) -> None:
  """Raises ValueError for settings that no family has."""
  defaults = {
    name: family.preprocessing
    for name, family in _FAMILIES.items()
    if family.preprocessing
  }
  known = ', '.join(defaults)
  if not isinstance(preprocessing, Mapping):
    raise ValueError(
      f'preprocessing={preprocessing!r} must hold settings by family of names, '
      f'of {known}.'
    )
  for family, changes in preprocessing.items():
    if family not in defaults or not isinstance(changes, Mapping):
      raise ValueError(
        f'preprocessing.{family}={changes!r} is not possible: choose one of '
        f'{known}, and settings of it.'
      )
    config_checks.replace(defaults[family](), changes)


# Family of names -> its changes.
Preprocessing = Annotated[
  Mapping[str, Changes], config_checks.CheckedBy(_check_preprocessing)
]
_NO_CHANGES: Preprocessing = {}
# (num_environments, seed) -> the environment.
Builder = Callable[[int, int], Environment]


@dataclasses.dataclass(frozen=True)
class _Family:
  """Environments whose names begin alike.

  Attributes:
    form: of the names, for error messages.
    kind: where its environments step.
    names: the full names that can be enumerated.
    builder: variant (None: the bare name of the family) -> its builder, or None
      if there is no such variant. Builds nothing costly itself, but raises
      ImportError if a package is not installed. Also takes changes where the
      family has a preprocessing.
    preprocessing: makes the record that changes are changes of.
  """

  form: str
  kind: Kind
  names: Callable[[], Iterable[str]]
  builder: Callable[..., Builder | None]
  preprocessing: Callable[[], Any] | None = None


def make(
  name: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing = _NO_CHANGES,
) -> Environment:
  """Makes an environment.

  Args:
    name: such as 'catch' or 'atari/breakout'; any other name raises an error
      that lists all forms.
    num_environments: B, of host environments; the others are batched by their
      callers.
    seed: of host environments; the others are given keys by their callers.
    preprocessing: family of names ('atari') -> fields of its module's
      `Preprocessing` -> values in place of its defaults.

  Returns:
    The environment.

  Raises:
    ImportError: if the environment needs a package that is not installed.
    ValueError: if the name is unknown, `num_environments` < 1, the environment
      is of a kind that is not supported, or a preprocessing is.
  """
  if num_environments < 1:
    raise ValueError(f'num_environments must be >= 1, got {num_environments}.')
  _check_preprocessing(preprocessing)
  environment = _builder(name, preprocessing)(num_environments, seed)
  if isinstance(environment, base.HostEnvironment):
    return timeouts.WatchedEnvironment(environment, name, seed)
  return environment


def validate(name: str) -> None:
  """Raises what `make` raises of the name, without making the environment."""
  _builder(name, _NO_CHANGES)


def names() -> tuple[str, ...]:
  """Returns names, also of what needs packages that are not installed.

  Of names that hold sizes, only the defaults; of Gymnasium, what is registered.
  """
  return tuple(name for family in _FAMILIES.values() for name in family.names())


def kind(name: str) -> Kind:
  """Returns where an environment steps, which is not made.

  Args:
    name: of the list of `names`.
  """
  return _FAMILIES[name.split('/', 1)[0]].kind


def _builder(name: str, preprocessing: Preprocessing) -> Builder:
  prefix, *variant = name.split('/', 1)
  builder = None
  if family := _FAMILIES.get(prefix):
    changes = [preprocessing.get(prefix, {})] if family.preprocessing else []
    builder = family.builder(variant[0] if variant else None, *changes)
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
  elif size := re.fullmatch('([0-9]{1,9})x([0-9]{1,9})', variant):
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


def _atari_builder(variant: str | None, changes: Changes) -> Builder | None:
  if variant not in atari.GAMES:
    return None
  atari.import_package()
  preprocessing = config_checks.replace(atari.BENCHMARK, changes)
  return functools.partial(atari.make, variant, preprocessing=preprocessing)


def _procgen_builder(variant: str | None, changes: Changes) -> Builder | None:
  game = (variant or '').removeprefix('easy/')
  if game not in procgen.GAMES:
    return None
  procgen.import_package()
  default = procgen.HARD if game == variant else procgen.EASY
  preprocessing = config_checks.replace(default, changes)
  return functools.partial(procgen.make, game, preprocessing=preprocessing)


def _dmlab_builder(variant: str | None, changes: Changes) -> Builder | None:
  if variant not in dmlab.LEVELS:
    return None
  dmlab.import_package()
  preprocessing = config_checks.replace(dmlab.Preprocessing(), changes)
  return functools.partial(dmlab.make, variant, preprocessing=preprocessing)


def _nethack_builder(variant: str | None, changes: Changes) -> Builder | None:
  if variant not in nethack.TASKS:
    return None
  nethack.import_package()
  preprocessing = config_checks.replace(nethack.BENCHMARK, changes)
  return functools.partial(nethack.make, variant, preprocessing=preprocessing)


def _minatar_builder(variant: str | None) -> Builder | None:
  return _gymnax_builder(gymnax_adapter.MINATAR.get(variant or ''))


def _bsuite_builder(variant: str | None) -> Builder | None:
  return _gymnax_builder(gymnax_adapter.BSUITE.get(variant or ''))


def _gymnax_builder(env_id: str | None) -> Builder | None:
  if env_id is None or not gymnax_adapter.is_registered(env_id):
    return None
  return lambda *_: gymnax_adapter.make(env_id)


def _craftax_builder(variant: str | None) -> Builder | None:
  if variant is None or variant not in craftax_adapter.VARIANTS:
    return None
  craftax_adapter.import_package()
  return lambda *_: craftax_adapter.make(variant)


def _sokoban_builder(variant: str | None, changes: Changes) -> Builder | None:
  levels = sokoban.find_levels(variant)
  if levels is None:
    return None
  sokoban.import_package()
  preprocessing = config_checks.replace(sokoban.BENCHMARK, changes)
  return lambda *_: sokoban.make(levels(), preprocessing)


def _crafter_builder(variant: str | None, changes: Changes) -> Builder | None:
  if variant is not None:
    return None
  crafter_adapter.import_package()
  preprocessing = config_checks.replace(crafter_adapter.BENCHMARK, changes)
  return functools.partial(crafter_adapter.make, preprocessing=preprocessing)


_FAMILIES = {
  'catch': _Family(
    form='catch or catch/ROWSxCOLUMNS (catch/10x5)',
    kind='device',
    names=lambda: ('catch',),
    builder=_catch_builder,
  ),
  'gridworld': _Family(
    form='gridworld/00 and gridworld/held_out_00, and further numbers',
    kind='device',
    names=gridworld_tasks.names,
    builder=_gridworld_builder,
  ),
  'gymnasium': _Family(
    form='gymnasium/ID (gymnasium/CartPole-v1)',
    kind='host',
    names=lambda: (
      f'gymnasium/{env_id}' for env_id in gymnasium_adapter.registered_ids()
    ),
    builder=_gymnasium_builder,
  ),
  'atari': _Family(
    form='atari/GAME (atari/breakout)',
    kind='host',
    names=lambda: suites.SUITES['atari57'],
    builder=_atari_builder,
    preprocessing=atari.Preprocessing,
  ),
  'procgen': _Family(
    form='procgen/GAME or procgen/easy/GAME (procgen/bigfish)',
    kind='host',
    names=lambda: (
      *suites.SUITES['procgen16'],
      *(f'procgen/easy/{game}' for game in procgen.GAMES),
    ),
    builder=_procgen_builder,
    preprocessing=procgen.Preprocessing,
  ),
  'dmlab': _Family(
    form='dmlab/LEVEL (dmlab/rooms_watermaze)',
    kind='host',
    names=lambda: suites.SUITES['dmlab30'],
    builder=_dmlab_builder,
    preprocessing=dmlab.Preprocessing,
  ),
  'nethack': _Family(
    form='nethack/TASK (nethack/score)',
    kind='host',
    names=lambda: (f'nethack/{task}' for task in nethack.TASKS),
    builder=_nethack_builder,
    preprocessing=nethack.Preprocessing,
  ),
  'minatar': _Family(
    form='minatar/GAME (minatar/breakout)',
    kind='device',
    names=lambda: suites.SUITES['minatar'],
    builder=_minatar_builder,
  ),
  'bsuite': _Family(
    form='bsuite/TASK (bsuite/memory_chain)',
    kind='device',
    names=lambda: suites.SUITES['bsuite'],
    builder=_bsuite_builder,
  ),
  'gymnax': _Family(
    form='gymnax/ID (gymnax/CartPole-v1)',
    kind='device',
    names=lambda: (f'gymnax/{env_id}' for env_id in gymnax_adapter.OTHERS),
    builder=_gymnax_builder,
  ),
  'craftax': _Family(
    form='craftax/VARIANT (craftax/classic_symbolic)',
    kind='device',
    names=lambda: (f'craftax/{name}' for name in craftax_adapter.VARIANTS),
    builder=_craftax_builder,
  ),
  'sokoban': _Family(
    form='sokoban, sokoban/held_out or sokoban/PATH of a file of levels',
    kind='device',
    names=lambda: ('sokoban', 'sokoban/held_out'),
    builder=_sokoban_builder,
    preprocessing=sokoban.Preprocessing,
  ),
  'crafter': _Family(
    form='crafter',
    kind='host',
    names=lambda: ('crafter',),
    builder=_crafter_builder,
    preprocessing=crafter_adapter.Preprocessing,
  ),
}
