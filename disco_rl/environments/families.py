"""The table of families of environments.

A family consists of all names with one prefix, such as 'atari/breakout'; a
suite is a list of names. To add both for a benchmark:
  1. An adapter, in a module with the family's name: a `base.JaxEnvironment` in
     jax_native/, or in host/ an `adapters.Adapter` or simulators for
     `sequential.SequentialEnvironment`. The module has `make`; a record
     `Preprocessing`, if there are settings; and `import_package`, which calls
     `packages.load`, if the package is optional.
  2. An entry of `FAMILIES`, at the end of this module, with a function that
     finds its variants, such as `_find_craftax`.
  3. suites.py: the names of the benchmark.
  4. pyproject.toml: an extra with the package, also part of `environments`.
  5. docs/environments.md: a row of the table, and the suite;
     docs/how-it-works.md: how its episodes end.
  6. evaluation/normalization.py: an entry of `_SCALES` with the scale of
     returns, if there are reference scores.
  7. tests/environments/: a test that calls `conformance.check`.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import re
from types import ModuleType
from typing import Any
from typing import Literal

import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import suites
from disco_rl.environments.host import atari
from disco_rl.environments.host import crafter_adapter
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import nethack
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import craftax_adapter
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.environments.jax_native import random_catch
from disco_rl.environments.jax_native import random_chains
from disco_rl.environments.jax_native import random_grids
from disco_rl.environments.jax_native import sokoban
from disco_rl.environments.jax_native import task_distribution

Environment = base.JaxEnvironment | base.HostEnvironment
# Where environments step: `base.JaxEnvironment` or `base.HostEnvironment`.
Kind = Literal['device', 'host']
# Fields of a family's `Preprocessing` -> values instead of the defaults.
Changes = Mapping[str, object]
# (num_environments, seed) -> the environment; some take `can_render`, too.
Builder = Callable[..., Environment]
# (variant, preprocessing) -> the builder, or None if there is no such variant.
# The variant is None for the family's name without a slash; the preprocessing
# is the family's record of settings, or None.
Finder = Callable[[str | None, Any], Builder | None]


@dataclasses.dataclass(frozen=True)
class Family:
  """Environments whose names have one prefix.

  Attributes:
    form: The form of the names, for error messages.
    kind: The place where its environments step.
    names: Returns the full names that can be enumerated.
    find: Returns the builder of a variant. It is cheap, but raises ImportError
      if a package is not installed.
    preprocessing: The record of settings; None if there are none.
    takes_can_render: Whether builders have an argument `can_render`, because
      their environments can only be rendered if they are made for it.
    find_spec: (variant, settings) -> the spec of an environment without using
      its package, or None if only the environment can tell.
    action_repeat: The field of `preprocessing` with the number of environment
      steps per action; empty: one.
  """

  form: str
  kind: Kind
  names: Callable[[], Iterable[str]]
  find: Finder
  preprocessing: type[config_lib.Settings] | None = None
  takes_can_render: bool = False
  find_spec: Callable[[str, Any], types.EnvironmentSpec | None] | None = None
  action_repeat: str = ''


def _listed(module: ModuleType, variants: Collection[str]) -> Finder:
  """Makes a finder of the variants of a family on the host.

  Args:
    module: The adapter, with `make(variant, num_environments, seed,
      preprocessing)`, a record `Preprocessing` with the benchmark's defaults,
      and `import_package()`, which raises ImportError if the package is not
      installed.
    variants: The names after the slash.
  """

  def find(variant: str | None, preprocessing: object) -> Builder | None:
    if variant not in variants:
      return None
    module.import_package()
    return functools.partial(module.make, variant, preprocessing=preprocessing)

  return find


def _find_catch(variant: str | None, _: None) -> Builder | None:
  if variant is None:
    environment = catch.Catch()
  elif size := re.fullmatch('([0-9]{1,9})x([0-9]{1,9})', variant):
    environment = catch.Catch(rows=int(size[1]), columns=int(size[2]))
  else:
    return None
  return lambda *_: environment


def _find_gridworld(variant: str | None, _: None) -> Builder | None:
  environment = None if variant is None else gridworld_tasks.make(variant)
  return None if environment is None else lambda *_: environment


def _find_task(
  make: Callable[[], task_distribution.TaskDistribution], variant: str | None
) -> Builder | None:
  """Finds a distribution of tasks, a subset of it, or a task by its number."""
  if variant is None:
    return lambda *_: make()
  found = re.fullmatch('(of_)?(0|[1-9][0-9]{0,8})', variant)
  if not found or variant == 'of_0':
    return None
  number = int(found[2])
  if found[1]:
    return lambda *_: task_distribution.Subset(make(), jnp.int32(number))
  return lambda *_: task_distribution.numbered(make(), number)


def _find_lpg(variant: str | None, _: None) -> Builder | None:
  name, *number = (variant or '').split('/', 1)
  if name not in random_grids.LPG_TASKS:
    return None
  make = functools.partial(random_grids.make_lpg, name)
  return _find_task(make, number[0] if number else None)


def _find_gymnasium(
  variant: str | None, preprocessing: gymnasium_adapter.Preprocessing
) -> Builder | None:
  env_id = variant or ''  # Raises without the package, also for the family.
  if not gymnasium_adapter.is_registered(env_id):
    return None
  return functools.partial(
    gymnasium_adapter.make, env_id, preprocessing=preprocessing
  )


def _find_gymnax(env_id: str | None, _: None) -> Builder | None:
  if env_id is None or not gymnax_adapter.is_registered(env_id):
    return None
  return lambda *_: gymnax_adapter.make(env_id)


def _find_craftax(variant: str | None, _: None) -> Builder | None:
  if variant is None or variant not in craftax_adapter.VARIANTS:
    return None
  craftax_adapter.import_package()
  return lambda *_: craftax_adapter.make(variant)


def _find_sokoban(
  variant: str | None, preprocessing: sokoban.Preprocessing
) -> Builder | None:
  levels = sokoban.find_levels(variant)
  if levels is None:
    return None
  sokoban.import_package()
  return lambda *_: sokoban.make(levels(), preprocessing)


def _find_crafter(
  variant: str | None, preprocessing: crafter_adapter.Preprocessing
) -> Builder | None:
  if variant is not None:
    return None
  crafter_adapter.import_package()
  return functools.partial(crafter_adapter.make, preprocessing=preprocessing)


# The part of a name before the slash -> its family.
FAMILIES = {
  'catch': Family(
    form='catch or catch/ROWSxCOLUMNS (catch/10x5)',
    kind='device',
    names=lambda: ('catch',),
    find=_find_catch,
  ),
  'gridworld': Family(
    form='gridworld/00 and gridworld/held_out_00, and further numbers',
    kind='device',
    names=lambda: gridworld_tasks.RETURNS,
    find=_find_gridworld,
  ),
  'random_grid': Family(
    form='random_grid, random_grid/NUMBER (17) or random_grid/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_grid',),
    find=lambda variant, _: _find_task(random_grids.RandomGrid, variant),
  ),
  'random_chain': Family(
    form='random_chain, random_chain/NUMBER or random_chain/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_chain',),
    find=lambda variant, _: _find_task(random_chains.RandomChain, variant),
  ),
  'random_catch': Family(
    form='random_catch, random_catch/NUMBER or random_catch/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_catch',),
    find=lambda variant, _: _find_task(random_catch.RandomCatch, variant),
  ),
  'lpg': Family(
    form='lpg/TASK or lpg/TASK/NUMBER (lpg/dense/17)',
    kind='device',
    names=lambda: suites.SUITES['lpg5'],
    find=_find_lpg,
  ),
  'gymnasium': Family(
    form='gymnasium/ID (gymnasium/CartPole-v1)',
    kind='host',
    names=lambda: (
      f'gymnasium/{env_id}' for env_id in gymnasium_adapter.registered_ids()
    ),
    find=_find_gymnasium,
    preprocessing=gymnasium_adapter.Preprocessing,
    takes_can_render=True,
  ),
  'atari': Family(
    form='atari/GAME (atari/breakout)',
    kind='host',
    names=lambda: suites.SUITES['atari57'],
    find=_listed(atari, atari.GAMES),
    preprocessing=atari.Preprocessing,
    takes_can_render=True,
    find_spec=atari.find_spec,
    action_repeat='frame_skip',
  ),
  'procgen': Family(
    form='procgen/GAME or procgen/easy/GAME (procgen/bigfish)',
    kind='host',
    names=lambda: (
      *suites.SUITES['procgen16'],
      *(f'procgen/easy/{game}' for game in procgen.GAMES),
    ),
    find=_listed(procgen, procgen.VARIANTS),
    preprocessing=procgen.Preprocessing,
    find_spec=procgen.find_spec,
  ),
  'dmlab': Family(
    form='dmlab/LEVEL (dmlab/rooms_watermaze)',
    kind='host',
    names=lambda: (
      *suites.SUITES['dmlab30'],
      *(f'dmlab/{level}' for level in dmlab.TEST_LEVELS),
    ),
    find=_listed(dmlab, dmlab.SCRIPTS),
    preprocessing=dmlab.Preprocessing,
    find_spec=dmlab.find_spec,
    action_repeat='action_repeat',
  ),
  'nethack': Family(
    form='nethack/TASK (nethack/score)',
    kind='host',
    names=lambda: (f'nethack/{task}' for task in nethack.TASKS),
    find=_listed(nethack, nethack.TASKS),
    preprocessing=nethack.Preprocessing,
    takes_can_render=True,
  ),
  'minatar': Family(
    form='minatar/GAME (minatar/breakout)',
    kind='device',
    names=lambda: suites.SUITES['minatar'],
    find=lambda variant, _: _find_gymnax(
      gymnax_adapter.MINATAR.get(variant or ''), None
    ),
  ),
  'bsuite': Family(
    form='bsuite/TASK (bsuite/memory_chain)',
    kind='device',
    names=lambda: suites.SUITES['bsuite'],
    find=lambda variant, _: _find_gymnax(
      gymnax_adapter.BSUITE.get(variant or ''), None
    ),
  ),
  'gymnax': Family(
    form='gymnax/ID (gymnax/CartPole-v1)',
    kind='device',
    names=lambda: (f'gymnax/{env_id}' for env_id in gymnax_adapter.OTHERS),
    find=_find_gymnax,
  ),
  'craftax': Family(
    form='craftax/VARIANT (craftax/classic_symbolic)',
    kind='device',
    names=lambda: (f'craftax/{name}' for name in craftax_adapter.VARIANTS),
    find=_find_craftax,
  ),
  'sokoban': Family(
    form='sokoban, sokoban/held_out or sokoban/PATH of a file of levels',
    kind='device',
    names=lambda: ('sokoban', 'sokoban/held_out'),
    find=_find_sokoban,
    preprocessing=sokoban.Preprocessing,
  ),
  'crafter': Family(
    form='crafter',
    kind='host',
    names=lambda: ('crafter',),
    find=_find_crafter,
    preprocessing=crafter_adapter.Preprocessing,
    action_repeat='action_repeat',
  ),
}
