"""Wraps the user's environments as JAX or host environments."""

from collections.abc import Callable
import dataclasses
import functools
import inspect
import sys
from typing import Any
import warnings

import dm_env

from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import dm_env_adapter
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.jax_native import gymnax_style

# Parameters that are seeds, whatever their default.
_SEED_NAMES = ('seed', 'random_seed', 'rng_seed', 'env_seed')

ACCEPTED = (
  'a name (disco-rl list-environments lists them)',
  'a JaxEnvironment or HostEnvironment of disco_rl.environments.base',
  'a function that makes a Gymnasium or dm_env environment, without arguments '
  'or from a seed',
  'an environment or a vector environment of Gymnasium',
  'an environment of dm_env',
  'an environment in the style of gymnax, or of navix, xminigrid, pgx or '
  'jumanji',
  'a pair of such an environment and its parameters',
)


@dataclasses.dataclass(frozen=True)
class Source:
  """A way to make an environment.

  Attributes:
    num_environments: The size of its batch; None: any number.
    build: (num_environments, seed) -> the environment.
  """

  num_environments: int | None
  build: family.Builder


def recognize(
  environment: Any,
  preprocessing: registry.Preprocessing = registry.NO_CHANGES,
  can_render: bool = False,
) -> Source:
  """Recognizes the kind of an environment.

  Args:
    environment: One of `ACCEPTED`.
    preprocessing: The preprocessing of an environment by name; see
      `registry.make`.
    can_render: Whether `render` will be called; see `registry.make`.

  Returns:
    The source of the environment, which is not made yet.

  Raises:
    TypeError: The environment is of another kind.
    ValueError: There is no environment of that name, actions are not discrete,
      or preprocessing is given for an environment without a name.
    ImportError: The environment of that name needs a package that is not
      installed.
  """
  if isinstance(environment, str):
    return _named(environment, preprocessing, can_render)
  if preprocessing:
    raise ValueError(
      f'preprocessing={dict(preprocessing)!r} is for environments by name: '
      f'preprocess {environment!r} where you make it.'
    )
  if isinstance(environment, base.JaxEnvironment):
    return Source(None, lambda *_: environment)
  if isinstance(environment, base.HostEnvironment):
    return Source(
      environment.num_environments,
      lambda _, seed: adapters.CheckedEnvironment(environment, seed),
    )
  if _is_gymnasium(environment, 'VectorEnv'):
    return Source(
      environment.num_envs,
      lambda _, seed: gymnasium_adapter.GymnasiumEnvironment(environment, seed),
    )
  if _is_gymnasium(environment, 'Env') or isinstance(
    environment, dm_env.Environment
  ):
    return Source(1, lambda _, seed: _wrap([environment], seed))
  if isinstance(environment, tuple) and len(environment) == 2:
    jax_environment = gymnax_style.make(*environment)
    return Source(None, lambda *_: jax_environment)
  if gymnax_style.is_known(environment):
    return recognize((environment, None))
  if callable(environment):
    return Source(None, functools.partial(_make, environment))
  raise TypeError(
    f'{environment!r} of type {type(environment).__name__} is not a known '
    f'environment. Pass {"; ".join(ACCEPTED)}.'
  )


def _named(
  name: str, preprocessing: registry.Preprocessing, can_render: bool
) -> Source:
  registry.validate(name)
  build = functools.partial(
    registry.make, name, preprocessing=preprocessing, can_render=can_render
  )
  return Source(None, build)


def _make(
  factory: Callable[..., Any], num_environments: int, seed: int
) -> base.HostEnvironment:
  """Makes host environments with a function."""
  seeds = adapters.sub_seeds(seed, num_environments).tolist()
  call = _with_seed(factory)
  adapters.keep_signals()
  envs = [factory() if call is None else call(s) for s in seeds]
  if call is None and len(envs) > 1 and isinstance(envs[0], dm_env.Environment):
    warnings.warn(
      f'{type(envs[0]).__name__} of dm_env is made without a seed: if it draws '
      'random numbers, all copies may be the same, in every run. Let the '
      'function that makes it take an argument `seed`.',
      stacklevel=2,
    )
  return _wrap(envs, seed)


def _with_seed(
  factory: Callable[..., Any],
) -> Callable[[int], Any] | None:
  """Returns a function that passes a seed, if the factory has a parameter.

  This is a parameter of `_SEED_NAMES`, or a first parameter without a default,
  because classes often have optional settings. Arguments that
  `functools.partial` has set are kept.

  Raises:
    TypeError: The factory is a function of Gymnasium that needs an id.
  """
  if getattr(factory, '__module__', '') == 'gymnasium.envs.registration':
    raise TypeError(
      f'gymnasium.{factory.__name__} needs the id of an environment: pass '
      "lambda: gymnasium.make('ID'), or the name 'gymnasium/ID'."
    )
  try:
    parameters = inspect.signature(factory).parameters
  except ValueError:  # A built-in function.
    return None
  given = getattr(factory, 'keywords', {})
  for name in _SEED_NAMES:
    named = parameters.get(name)
    if (
      named is not None
      and named.kind in (named.KEYWORD_ONLY, named.POSITIONAL_OR_KEYWORD)
      and name not in given
    ):
      return _by_name(factory, name)
  first = next(iter(parameters.values()), None)
  if (
    first is not None
    and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
    and (first.name == 'seed' or first.default is first.empty)
  ):
    return functools.partial(_call_with_seed, factory, first.name)
  return None


def _by_name(factory: Callable[..., Any], name: str) -> Callable[[int], Any]:
  return lambda seed: factory(**{name: seed})


def _call_with_seed(
  factory: Callable[..., Any], parameter: str, seed: int
) -> Any:
  """Passes a seed as the first argument; errors say so."""
  try:
    return factory(seed)
  except Exception as error:
    error.add_note(
      f'The function was called with a seed, {seed}, because its argument '
      f'{parameter!r} has no default: if this is no seed, pass a function '
      'without arguments.'
    )
    raise


def _wrap(envs: list[Any], seed: int) -> base.HostEnvironment:
  """Wraps environments of Gymnasium or dm_env."""
  is_dm_env = isinstance(envs[0], dm_env.Environment)
  if not is_dm_env and not _is_gymnasium(envs[0], 'Env'):
    raise TypeError(
      f'The function made {envs[0]!r} of type {type(envs[0]).__name__}: it '
      'must make one environment of Gymnasium or of dm_env. Pass a JAX-native '
      'environment itself.'
    )
  if len({id(env) for env in envs}) < len(envs):
    raise ValueError(
      f'The function returned the same {type(envs[0]).__name__} twice: it must '
      'make a new environment each time it is called.'
    )
  if is_dm_env:
    return dm_env_adapter.DmEnvEnvironment(envs, seed)
  return gymnasium_adapter.SingleEnvironments(envs, seed)


def _is_gymnasium(thing: object, name: str) -> bool:
  """Returns whether a thing is a Gymnasium class, without importing it."""
  gymnasium = sys.modules.get('gymnasium')
  if gymnasium is None:
    return False
  classes = {'Env': gymnasium.Env, 'VectorEnv': gymnasium.vector.VectorEnv}
  return isinstance(thing, classes[name])
