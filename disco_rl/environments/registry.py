"""Makes environments by name: FAMILY or FAMILY/VARIANT.

The docstring of families.py describes how to add environments.
"""

from collections.abc import Mapping
import contextlib
import dataclasses
import difflib
import functools
import re
from typing import Annotated
from typing import Any

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import families
from disco_rl.environments import family as family_lib
from disco_rl.environments import suites
from disco_rl.environments.host import adapters
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import timeouts


def _check_preprocessing(preprocessing: object) -> None:
  """Raises ValueError for settings that no family has."""
  defaults = _defaults()
  known = ', '.join(defaults)
  if not isinstance(preprocessing, Mapping):
    raise ValueError(
      f'preprocessing={preprocessing!r} must hold settings by family of names: '
      f'{known}.'
    )
  for family, changes in preprocessing.items():
    if family not in defaults or not isinstance(changes, Mapping):
      raise ValueError(
        f'preprocessing.{family}={changes!r} is not possible: choose one of '
        f'{known}, and its settings.'
      )
    config_lib.replace(defaults[family], changes)


def _defaults() -> dict[str, config_lib.Settings]:
  """Returns the default preprocessing of the families that have settings."""
  return {
    name: family.preprocessing()
    for name, family in families.FAMILIES.items()
    if family.preprocessing
  }


def default_preprocessing() -> dict[str, family_lib.Changes]:
  """Returns all fields of preprocessing with their defaults, by family."""
  return {name: dataclasses.asdict(x) for name, x in _defaults().items()}


# Family of names -> changes of its preprocessing.
Preprocessing = Annotated[
  Mapping[str, family_lib.Changes], config_lib.Validator(_check_preprocessing)
]
NO_CHANGES: Preprocessing = {}
_BUILT_IN = frozenset(families.FAMILIES)


def make(
  name: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing = NO_CHANGES,
  can_render: bool = False,
) -> family_lib.Environment:
  """Makes an environment.

  Args:
    name: A name such as 'catch' or 'atari/breakout'. The error about an unknown
      name lists all forms.
    num_environments: B, for host environments; callers batch JAX environments.
    seed: The seed of host environments; callers pass keys to JAX environments.
    preprocessing: Family of names ('atari') -> fields of its module's
      `Preprocessing` -> values instead of the defaults.
    can_render: Whether `render` will be called, which makes the steps of some
      environments more expensive.

  Returns:
    The environment.

  Raises:
    ImportError: The environment needs a package that is not installed.
    ValueError: The name is unknown, `num_environments` < 1, or the environment
      or the preprocessing is not supported.
  """
  if num_environments < 1:
    raise ValueError(f'num_environments must be >= 1, got {num_environments}.')
  _check_preprocessing(preprocessing)
  adapters.keep_signals()
  build: Any = functools.partial(
    _builder(name, preprocessing, can_render), num_environments, seed
  )
  try:
    if kind(name) == 'device':
      return build()
    return timeouts.WatchedEnvironment(build, name, seed)
  except SystemExit as error:
    raise ValueError(
      f'{name} with seed {seed} called sys.exit({error.code!r}) while it was '
      'made.'
    ) from error


def validate(name: str) -> None:
  """Raises the errors of `make` about a name, without making anything."""
  _builder(name, NO_CHANGES)


def import_module(name: str) -> str | None:
  """Imports MODULE of a name gymnasium/MODULE:ID, for its environments.

  Importing runs code: call this only for names that the user gave in this
  process, not for names from files. Other functions only find environments
  whose modules have been imported.

  Returns:
    The module; None if the name has another form.

  Raises:
    ImportError: There is no such module.
  """
  prefix, _, variant = name.partition('/')
  if prefix != 'gymnasium':
    return None
  return gymnasium_adapter.import_module(variant)


def usable_families() -> list[str]:
  """Returns the families whose packages are installed."""
  usable = []
  for name, family in families.FAMILIES.items():
    example = next(iter(family.names()), None)
    if example is None:  # Names may need the package.
      continue
    with contextlib.suppress(ImportError):
      validate(example)
      usable.append(name)
  return usable


def action_repeat(name: str, preprocessing: Preprocessing = NO_CHANGES) -> int:
  """Returns the action repeat of the spec of an environment, by its name.

  Benchmarks count frames of the emulator or the simulator; so do budgets,
  lengths of runs and reports.

  Raises:
    ValueError: The name is of no family.
  """
  prefix = name.split('/', 1)[0]
  if prefix not in families.FAMILIES:
    raise ValueError(_unknown(name))
  settings = _settings(prefix, preprocessing)
  return families.FAMILIES[prefix].action_repeat(settings)


def specimen(
  name: str, preprocessing: Preprocessing = NO_CHANGES
) -> tuple[types.EnvironmentSpec, base.JaxEnvironment | None]:
  """Describes an environment, which is only made if its spec is unknown.

  Arguments and errors are those of `make`.

  Returns:
    The spec, and the environment if it is JAX-native.
  """
  _check_preprocessing(preprocessing)
  prefix, *variant = name.split('/', 1)
  family = families.FAMILIES.get(prefix)
  if family and family.find_spec and name in family.names():
    settings = _settings(prefix, preprocessing)
    if spec := family.find_spec(variant[0], settings):
      return spec, None
  environment = make(name, 1, 0, preprocessing)
  if isinstance(environment, base.JaxEnvironment):
    return environment.spec, environment
  environment.close()
  return environment.spec, None


def _settings(
  prefix: str, preprocessing: Preprocessing
) -> config_lib.Settings | None:
  """Builds the preprocessing of a family; None if it has no settings."""
  record = families.FAMILIES[prefix].preprocessing
  if record is None:
    return None
  return config_lib.replace(record(), preprocessing.get(prefix, {}))


def register(
  name: str, build: family_lib.Builder, kind: family_lib.Kind
) -> None:
  """Registers an environment under a name, also for launchers.

  It replaces an earlier registration, so that a cell of a notebook can be run
  again.

  Args:
    name: A name without a slash.
    build: (num_environments, seed) -> the environment; see `base`.
    kind: The place where it steps, 'device' or 'host'.

  Raises:
    ValueError: A family of the package has the name, or it has a slash.
  """
  if name in _BUILT_IN or '/' in name:
    raise ValueError(
      f'{name!r} cannot be registered: a family of environments has this name, '
      'or it has a slash.'
    )
  families.FAMILIES[name] = family_lib.Family(
    form=name,
    kind=kind,
    names=lambda: (name,),
    find=lambda variant, _: build if variant is None else None,
    # Only the environment itself can tell; it is made once.
    action_repeat=functools.cache(lambda _: specimen(name)[0].action_repeat),
  )


def names() -> tuple[str, ...]:
  """Returns all names, including those of packages that are not installed.

  Environments of any size are listed only at their default size, and those of
  Gymnasium only if they are registered.
  """
  return tuple(
    name for family in families.FAMILIES.values() for name in family.names()
  )


def kind(name: str) -> family_lib.Kind:
  """Returns where the environment of a valid name steps, without making it."""
  return families.FAMILIES[name.split('/', 1)[0]].kind


def success_threshold(name: str) -> float | None:
  """Returns the return above which an episode is a success; None if undefined.

  If it is defined, the environment is scored by its fraction of successes.
  """
  family = families.FAMILIES.get(name.partition('/')[0])
  return None if family is None else family.success_threshold


def _builder(
  name: str, preprocessing: Preprocessing, can_render: bool = False
) -> family_lib.Builder:
  prefix, *variant = name.split('/', 1)
  builder = None
  if family := families.FAMILIES.get(prefix):
    builder = family.find(
      variant[0] if variant else None, _settings(prefix, preprocessing)
    )
    if builder and can_render and family.takes_can_render:
      return functools.partial(builder, can_render=True)
  if builder is None:
    raise ValueError(_unknown(name))
  return builder


def _unknown(name: str) -> str:
  if name in suites.SUITES:
    return (
      f'{name!r} is a suite of {len(suites.SUITES[name])} environments, not '
      'the name of one: disco_rl.environments.suites.expand lists them.'
    )
  known = (*names(), *suites.SUITES)
  close = difflib.get_close_matches
  # Names in other libraries: Pong, ALE/Pong-v5, PongNoFrameskip-v4.
  bare = re.split('NoFrameskip|-v[0-9]', name.split('/')[-1])[0].lower()
  bare_of = lambda x: x.split('/')[-1].replace('_', '')
  nearest = dict.fromkeys(
    [*[x for x in known if bare_of(x) == bare], *close(name, known)]
  )
  family = families.FAMILIES.get(name.split('/')[0])
  form = f' Form of such names: {family.form}.' if family else ''
  return (
    f'Unknown environment {name!r}. Nearest names: '
    f'{", ".join(nearest) or "none"}.{form} disco-rl list-environments lists '
    'them all.'
  )
