"""Environments of the Gymnasium API, an optional extra of this package.

`make` makes a registered environment by id, `SingleEnvironments` wraps single
environments, and `GymnasiumEnvironment` a vector environment.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import importlib
import inspect
import multiprocessing
import multiprocessing.connection
import os
import sys
from typing import TYPE_CHECKING
from typing import Annotated
from typing import Any
import warnings

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import gymnasium_masks
from disco_rl.environments.host import gymnasium_spaces
from disco_rl.environments.host import sequential

if TYPE_CHECKING:
  import gymnasium

_RGB = 'rgb_array'
# Attributes of wrappers of Gymnasium and others that normalize.
_STATISTICS = ('obs_rms', 'return_rms', 'ret_rms', 'reward_rms')
# What a pipe raises if the process at its other end is gone.
_DEATHS = (EOFError, ConnectionError)
# The default if an environment has none.
_FRAMES_PER_SECOND = 30.0


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.gymnasium.'):
  """Settings of environments of Gymnasium.

  Attributes:
    vectorization: 'none', sequentially in this process; 'async', each in its
      own process, for simulators that take milliseconds per step; or
      'vector_entry_point', by the package's vector environment.
    masks_in_info: whether `info['action_mask']` has the legal actions, for
      environments that are not vectorized by their package.
  """

  vectorization: Annotated[
    str, config_lib.one_of('none', 'async', 'vector_entry_point')
  ] = 'none'
  masks_in_info: bool = False

  def conflicts(self) -> Iterator[str]:
    """Yields an error for masks of vector environments."""
    if self.masks_in_info and self.vectorization == 'vector_entry_point':
      yield (
        'masks_in_info=True reads the infos of single environments, and '
        "vectorization='vector_entry_point' has none: choose another."
      )


class GymnasiumEnvironment(adapters.Adapter):
  """Any vector environment of Gymnasium with discrete actions.

  See `gymnasium_spaces` for actions and observations.

  The environments reset in the next or the same step, like the vector
  environment; if its autoreset mode is "disabled", they are reset in the same
  step by `options['reset_mask']`.
  """

  def __init__(
    self, env: 'gymnasium.vector.VectorEnv', seed: int, name: str | None = None
  ):
    """Wraps a vector environment.

    Args:
      env: The vector environment, which only this object uses from now on.
      seed: The seed of the batch; see `adapters.sub_seeds`. It is used in the
        first reset; later ones continue the random streams.
      name: The name for messages; None: the name in the vector environment's
        spec.

    Raises:
      ImportError: gymnasium is not installed.
      ValueError: The action space, the observation space or the autoreset mode
        is not supported.
    """
    modes = gymnasium_spaces.import_gymnasium().vector.AutoresetMode
    name = name or (_name(env) if env.spec is None else env.spec.id)
    mode = _autoreset_mode(env, name)
    _warn_of_statistics(env, name)
    self._env = env
    self._is_seeded = False
    self._must_be_reset = mode == modes.DISABLED
    self._spaces = gymnasium_spaces.make(
      env.single_observation_space, env.single_action_space, name
    )
    super().__init__(
      name, int(seed), self._spaces.spec, env.num_envs, mode == modes.NEXT_STEP
    )

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `HostEnvironment.encode`."""
    return self._spaces.encode(observation)

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Implements `HostEnvironment.decode`."""
    return self._spaces.decode(action)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    with adapters.closing(self._name):
      self._env.close()

  def _reset(self) -> types.PyTree:
    seed = None if self._is_seeded else _reset_seeds(self._env, self._seed)
    with _named_death(self._env):
      observation, _ = self._env.reset(seed=seed)
    self._is_seeded = True
    return self._read(observation)

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    with _named_death(self._env):
      observation, reward, is_terminated, is_truncated, _ = self._env.step(
        self._spaces.decode(action)
      )
      is_last = np.logical_or(is_terminated, is_truncated)
      if self._must_be_reset and is_last.any():
        observation, _ = self._env.reset(options={'reset_mask': is_last})
    return self._read(observation), reward, is_terminated, is_truncated

  def _read(self, observation: types.PyTree) -> types.PyTree:
    # Copies, because the vector environment may reuse its arrays.
    return jax.tree.map(np.array, self.encode(observation))


class SingleEnvironments(sequential.SequentialEnvironment):
  """Environments of Gymnasium that step sequentially.

  They reset in the next step. Actions and observations are those of
  `GymnasiumEnvironment`; masks from a method `action_masks` are added to
  observations, see `gymnasium_masks`.
  """

  def __init__(
    self, envs: Sequence['gymnasium.Env'], seed: int, name: str | None = None
  ):
    """Wraps environments.

    Args:
      envs: The B environments with equal spaces, which only this object uses
        from now on.
      seed: The seed of the batch; see `adapters.sub_seeds`. Each environment
        gets its own seed in its first reset.
      name: The name for messages; None: that of the first environment.

    Raises:
      ImportError: gymnasium is not installed.
      ValueError: The spaces are not supported, or differ.
    """
    name = name or _name(envs[0])
    for attribute in ('observation_space', 'action_space'):
      if not hasattr(envs[0], attribute):
        raise TypeError(
          f'{name} has no {attribute}, which Gymnasium requires: set it in the '
          'constructor.'
        )
    _warn_of_statistics(envs[0], name)
    envs = [gymnasium_masks.add(env) for env in envs]
    spaces = [(env.observation_space, env.action_space) for env in envs]
    if differing := [i for i, x in enumerate(spaces) if x != spaces[0]]:
      raise ValueError(
        f'The spaces of environments 0 and {differing[0]} of {name} differ: '
        f'{spaces[0]} and {spaces[differing[0]]}. Environments of one batch '
        'must have equal spaces.'
      )
    self._spaces = gymnasium_spaces.make(*spaces[0], name)
    seeds = adapters.sub_seeds(seed, len(envs)).tolist()
    super().__init__(
      [_Simulator(env, own, self._spaces) for env, own in zip(envs, seeds)],
      self._spaces.spec,
      name,
      seed,
      self._spaces.raw,
    )
    self.frames_per_second = _frames_per_second(envs[0], name)

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `HostEnvironment.encode`."""
    return self._spaces.encode(observation)

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Implements `HostEnvironment.decode`."""
    return self._spaces.decode(action)


class _Simulator(sequential.Simulator):
  """One environment, as `sequential.Simulator`."""

  def __init__(self, env: Any, seed: int, spaces: gymnasium_spaces.Spaces):
    self._env = env
    self._seed: int | None = seed
    self._decode = spaces.decode

  def reset(self) -> types.PyTree:
    returned = self._env.reset(seed=self._seed)
    self._seed = None
    # Otherwise an observation of two numbers, in the old interface, would pass.
    if not _is_pair(returned):
      raise TypeError(
        f'reset returned {_outline(returned)}, but Gymnasium requires '
        '(observation, info), where info is a dictionary'
      )
    return returned[0]

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    returned = self._env.step(self._decode(np.asarray(action)))
    if not isinstance(returned, (tuple, list)) or len(returned) != 5:
      raise TypeError(
        f'step returned {_outline(returned)}, but Gymnasium requires '
        '(observation, reward, terminated, truncated, info)'
      )
    observation, reward, is_terminated, is_truncated, _ = returned
    return observation, reward, is_terminated, is_truncated

  def render(self) -> np.ndarray:
    if self._env.render_mode != _RGB:
      raise base.RenderError(
        f'{_name(self._env)} was made without render_mode={_RGB!r}: make it '
        f'with this mode, if it has it; it has {_render_modes(self._env)}.'
      )
    try:
      picture = self._env.render()
    # Each package raises its own errors if a library is missing.
    except Exception as error:
      raise base.RenderError(
        f'{_name(self._env)} cannot be drawn: {error!r}'
      ) from error
    return _as_rgb(picture, _name(self._env))

  def close(self) -> None:
    self._env.close()


def make(
  env_id: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing = Preprocessing(),
  can_render: bool = False,
) -> SingleEnvironments | GymnasiumEnvironment:
  """Makes copies of the environment with an id for `gymnasium.make`.

  The arguments are those of `registry.make`. With `can_render` they step
  sequentially, and can be rendered if they have the mode 'rgb_array'.

  Raises:
    ImportError: gymnasium, or a package that the environment needs, is not
      installed.
    ValueError: The environment's spaces are not supported.
    adapters.HostEnvironmentError: Making an environment raised another error.
  """
  gymnasium = gymnasium_spaces.import_gymnasium()
  # Without its module, which Gymnasium would import.
  registered_id = env_id.rpartition(':')[2]
  vectorization = preprocessing.vectorization
  if vectorization == 'async' and _is_starting():
    # It could start no process, and would say so in a hundred lines. The first
    # process, whose script has no guard, says what is wrong.
    os._exit(1)
  add_masks = functools.partial(
    gymnasium_masks.add, is_in_info=preprocessing.masks_in_info
  )
  try:
    if vectorization != 'none' and not can_render:
      envs = gymnasium.make_vec(
        registered_id,
        num_environments,
        vectorization,
        # A fork may hang if other threads hold locks.
        {'context': 'forkserver'} if vectorization == 'async' else None,
        None if vectorization == 'vector_entry_point' else [add_masks],
      )
      return GymnasiumEnvironment(envs, seed, envs.spec.id)
    settings = (
      {'render_mode': _RGB} if can_render and _takes_rgb(registered_id) else {}
    )
    envs = [
      add_masks(gymnasium.make(registered_id, **settings))
      for _ in range(num_environments)
    ]
  except gymnasium.error.DependencyNotInstalled as error:
    raise ImportError(
      f'gymnasium/{env_id} needs a package that is not installed: {error}'
    ) from error
  except ImportError:
    raise
  except _DEATHS as error:
    raise adapters.HostEnvironmentError(
      f'A process for gymnasium/{env_id} died when it was started. Likely a '
      "script with vectorization='async' trains outside of `if __name__ == "
      "'__main__':`, so that each process, which imports the script, would "
      f'train as well: put the code under that line. ({error!r})'
    ) from error
  except Exception as error:
    raise adapters.HostEnvironmentError(
      f'gymnasium/{env_id} raised when it was made: {error!r}'
    ) from error
  return SingleEnvironments(envs, seed, envs[0].spec.id)


def _is_starting() -> bool:
  """Returns whether this process, started by another, imports its script."""
  process = multiprocessing.current_process()
  return bool(getattr(process, '_inheriting', False))


@contextlib.contextmanager
def _named_death(env: 'gymnasium.vector.VectorEnv') -> Iterator[None]:
  """Says which processes of a vector environment died, if one did.

  Raises:
    SimulatorError: A process died.
  """
  try:
    yield
  except _DEATHS as error:
    processes = getattr(env.unwrapped, 'processes', [])
    # The pipe closes before the exit code is known.
    multiprocessing.connection.wait([x.sentinel for x in processes], timeout=5)
    codes = [x.exitcode for x in processes]
    dead = [i for i, code in enumerate(codes) if code is not None]
    which = ', '.join(f'{i} (exit code {codes[i]})' for i in dead)
    raise data_checks.SimulatorError(
      f'the process of environment {which or "?"} of {len(codes)} died: likely '
      'the simulator crashed, or was killed for lack of memory'
    ) from error


def registered_ids() -> tuple[str, ...]:
  """Returns the ids for `make`; none if gymnasium is not installed."""
  try:
    return tuple(gymnasium_spaces.import_gymnasium().registry)
  except ImportError:
    return ()


def is_registered(env_id: str) -> bool:
  """Returns whether `make` would find an environment, without making it.

  Args:
    env_id: An id with its version, or MODULE:ID, where the module, which
      registers the environment, has been imported before.

  Raises:
    ImportError: gymnasium is not installed.
    ValueError: The module has not been imported.
  """
  gymnasium = gymnasium_spaces.import_gymnasium()
  module, colon, registered_id = env_id.rpartition(':')
  if colon and not extras.is_module(module):
    return False
  # The name may be from the file of a stranger, which must not run code.
  if colon and module not in sys.modules:
    raise ValueError(
      f'gymnasium/{env_id} needs the module {module}, which is not imported: '
      'importing it runs its code, so a name in a file never does. If you '
      f'trust it, add --import={module} to the command, or write `import '
      f'{module}` first in Python.'
    )
  return registered_id in gymnasium.registry


def import_module(env_id: str) -> str | None:
  """Imports the module in an id MODULE:ID, which the user must have given.

  Returns:
    The name of the module; None if the id names none.

  Raises:
    ImportError: There is no such module.
  """
  module, colon, _ = env_id.rpartition(':')
  # Only names of modules can be imported, not paths.
  if not colon or not extras.is_module(module):
    return None
  importlib.import_module(module)
  return module


def _takes_rgb(env_id: str) -> bool:
  """Returns whether an environment can be made with render_mode 'rgb_array'.

  Its entry point is a class or a function, or names one. The modes of an
  environment that a function makes are only known once it is made.
  """
  gymnasium = gymnasium_spaces.import_gymnasium()
  registration = importlib.import_module('gymnasium.envs.registration')
  creator = gymnasium.spec(env_id).entry_point
  if isinstance(creator, str):
    creator = registration.load_env_creator(creator)
  if creator is None or not _accepts(creator, 'render_mode'):
    return False
  if hasattr(creator, 'metadata'):
    return _RGB in _render_modes(creator)
  with contextlib.closing(gymnasium.make(env_id)) as env:
    return _RGB in _render_modes(env)


def _accepts(function: Callable[..., object], name: str) -> bool:
  """Returns whether a function or a class has an argument of that name."""
  try:
    parameters = inspect.signature(function).parameters
  except ValueError:  # It is not written in Python.
    return True
  return name in parameters or any(
    parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()
  )


def _is_pair(returned: object) -> bool:
  """Returns whether a reset returned an observation and a dictionary."""
  return (
    isinstance(returned, tuple | list)
    and len(returned) == 2
    and (returned[1] is None or isinstance(returned[1], Mapping))
  )


def _outline(returned: object) -> str:
  """Describes the result of a function, for messages."""
  if isinstance(returned, tuple | list):
    return f'{len(returned)} values'
  return data_checks.entries_of(returned)


def _as_rgb(picture: object, name: str) -> np.ndarray:
  """Converts a picture, possibly gray or with alpha, to [H, W, 3] uint8.

  Raises:
    base.RenderError: It is not a picture, or its numbers do not range from 0 to
      255; floats often range to 1.
  """
  array = np.asarray(picture)
  if array.ndim == 2:
    array = array[:, :, None]
  is_valid = (
    array.ndim == 3
    and array.size > 0
    and array.shape[-1] in (1, 3, 4)
    and array.dtype.kind in 'iu'
    and 0 <= array.min() <= array.max() <= 255
  )
  if not is_valid:
    raise base.RenderError(
      f'{name} cannot be drawn: render returned '
      f'{type(picture).__name__} of {array.dtype}{list(array.shape)}, expected '
      'whole numbers from 0 to 255, [H, W, 3].'
    )
  return np.repeat(
    array[..., :3], 3 // min(array.shape[-1], 3), axis=-1
  ).astype(np.uint8)


def _name(env: object) -> str:
  """Returns the text of an environment, or the name of its class."""
  try:
    return str(env)
  except Exception:  # It may need what `reset` makes.
    return type(env).__name__


def _metadata(env: object) -> Mapping[str, Any]:
  """Returns the metadata of an environment or its class; {} for none."""
  metadata = getattr(env, 'metadata', None)
  return metadata if isinstance(metadata, Mapping) else {}


def _render_modes(env: object) -> list[str]:
  return list(_metadata(env).get('render_modes') or [])


def _frames_per_second(env: object, name: str) -> float:
  """Returns the speed of films; a default, with a warning, if it is invalid."""
  pace = _metadata(env).get('render_fps')
  if pace is None:
    return _FRAMES_PER_SECOND
  try:
    if 0 < float(pace) < np.inf:
      return float(pace)
  except (TypeError, ValueError):
    pass
  warnings.warn(
    f"{name} has metadata['render_fps'] = {pace!r}, expected a positive "
    f'number: films show {_FRAMES_PER_SECOND:g} frames per second.',
    stacklevel=2,
  )
  return _FRAMES_PER_SECOND


def _warn_of_statistics(env: object, name: str) -> None:
  """Warns of a wrapper that normalizes by statistics of what it has seen."""
  while env is not None:
    if any(hasattr(env, attribute) for attribute in _STATISTICS):
      warnings.warn(
        f'{type(env).__name__} of {name} keeps running statistics, which '
        'belong to one copy of the environment: evaluation, films and resumed '
        'runs begin with others, so that agents see other numbers. Leave it '
        "out, and set the agent's normalize_observations or normalize_rewards.",
        stacklevel=2,
      )
      return
    own = getattr(env, '__dict__', {})
    env = own.get('env', next(iter(own.get('envs', [])), None))


def _autoreset_mode(
  env: 'gymnasium.vector.VectorEnv', name: str
) -> 'gymnasium.vector.AutoresetMode':
  modes = gymnasium_spaces.import_gymnasium().vector.AutoresetMode
  mode = _metadata(env).get('autoreset_mode')
  try:
    # Some environments return the value of the mode instead of the mode.
    return modes(mode)
  except ValueError as error:
    raise ValueError(
      f"{name} has metadata['autoreset_mode'] = {mode}, which does not say how "
      'it resets: set it to the mode of the environment, one of '
      f'{", ".join(map(str, modes))}.'
    ) from error


def _reset_seeds(env: 'gymnasium.vector.VectorEnv', seed: int) -> Any:
  """Returns the seed for the first reset, or one per environment."""
  vector = gymnasium_spaces.import_gymnasium().vector
  if isinstance(env.unwrapped, (vector.SyncVectorEnv, vector.AsyncVectorEnv)):
    return adapters.sub_seeds(seed, env.num_envs).tolist()
  # Only these two accept a seed for each environment. Others may count up from
  # one seed, so seeds must be far apart.
  return int(adapters.sub_seeds(seed, 1)[0])


def _find(
  variant: str | None, preprocessing: Preprocessing
) -> family.Builder | None:
  """Returns the builder of an id; raises ImportError without the package."""
  env_id = variant or ''
  if not is_registered(env_id):
    return None
  return functools.partial(make, env_id, preprocessing=preprocessing)


FAMILIES = {
  'gymnasium': family.Family(
    form='gymnasium/ID (gymnasium/CartPole-v1)',
    kind='host',
    names=lambda: (f'gymnasium/{env_id}' for env_id in registered_ids()),
    find=_find,
    preprocessing=Preprocessing,
    takes_can_render=True,
  )
}
