"""Agent files: npz archives of an agent's arrays, with its description.

A file contains a tree of arrays, each under its path in the tree. A policy's
file contains only the parameters, under the same names as in a trainer's file.
The description is the note of the archive; see `runtime.npz`. It also names the
version of the program that wrote the file.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import json
import os
from typing import Any
from typing import TypeVar
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.api import rules
from disco_rl.environments import registry
from disco_rl.networks import torsos
from disco_rl.runtime import files
from disco_rl.runtime import npz
from disco_rl.runtime import reports
from disco_rl.runtime import versions
from disco_rl.training import checks

# The version of the format that this module writes. It also reads version 1, of
# disco_rl 0.2, which has no `environment_steps` and `objects`.
VERSION = 2
_READ = (1, VERSION)
# The entry of the note with the version of the program.
_PROGRAM = 'disco_rl'
# The array with the description in files of disco_rl 0.1.
_OF_0_1 = 'description'
# The key of the training state in the tree, and the path of theta.
STATE = 'train_state'
_PARAMS = f"['{STATE}'].learner.params"
_Array = TypeVar('_Array')


@dataclasses.dataclass(frozen=True)
class Description:
  """The description of an agent.

  Attributes:
    environment: The name of the environment; None for the user's own object.
    preprocessing: Changes to environments; see `environments.registry.make`.
    rule: The name or path of the rule; None for the user's own object.
    rule_settings: The settings of the rule; in files of disco_rl 0.2 only those
      that were given.
    seed: The seed of the agent.
    settings: The flat settings of `AgentConfig`; torso is None if it is a
      function.
    state_outputs: The heads of the state, `OutputSpec.state`.
    action_outputs: The heads of the actions, `OutputSpec.action`.
    environment_steps: The environment steps of the agent; None: unknown.
    objects: The names of the user's own objects, by `environment`, `rule` and
      `torso`.
    rule_digest: A checksum of the rule's parameters; None: unknown.
    seeds: The number of agents, whose seeds count up from `seed`.
  """

  environment: str | None
  preprocessing: registry.Preprocessing
  rule: str | None
  rule_settings: Mapping[str, object]
  seed: int
  settings: Mapping[str, object]
  state_outputs: Mapping[str, int]
  action_outputs: Mapping[str, int]
  environment_steps: int | None = None
  objects: Mapping[str, str] = dataclasses.field(default_factory=dict)
  rule_digest: int | None = None
  seeds: int = 1

  @property
  def output_spec(self) -> types.OutputSpec:
    """The heads of the network."""
    return types.OutputSpec(self.state_outputs, self.action_outputs)

  def config(self, torso: torsos.Torso | None = None) -> agent_lib.AgentConfig:
    """Builds the settings of the agent.

    Args:
      torso: A torso that replaces the described one; required if the agent's
        torso is a function.

    Raises:
      ValueError: A setting is not valid, or the torso is missing.
    """
    settings = {**self.settings}
    if torso is not None:
      settings['torso'] = torso
    # A setting that a file lacks has the default.
    if settings.get('torso', '') is None:
      raise ValueError(
        "The agent's torso is a function, which a file cannot contain: pass it "
        'as torso=... to disco_rl.load_policy or disco_rl.Trainer.'
      )
    return config_lib.build(agent_lib.AgentConfig, settings)


def describe(
  environment: object,
  preprocessing: registry.Preprocessing,
  rule: rules.LoadedRule,
  seed: int,
  config: agent_lib.AgentConfig,
  spec: types.EnvironmentSpec,
) -> Description:
  """Describes an agent; of functions and objects only the names are kept."""
  outputs = rule.output_spec(spec.num_actions)
  settings = config_lib.flatten(config)
  objects = {'environment': environment, 'torso': settings['torso']}
  if rule.name is None:
    objects['rule'] = rule.rule
  if not isinstance(settings['torso'], str):
    settings['torso'] = None
  return Description(
    environment=environment if isinstance(environment, str) else None,
    preprocessing=preprocessing,
    rule=rule.name,
    rule_settings=_rule_settings(rule.rule),
    seed=seed,
    settings=settings,
    state_outputs=outputs.state,
    action_outputs=outputs.action,
    objects={
      kind: name_of(x) for kind, x in objects.items() if not isinstance(x, str)
    },
    rule_digest=_digest(rule.params),
  )


def _rule_settings(rule: object) -> dict[str, object]:
  """Returns the settings of a rule, which may be the user's own object."""
  if not dataclasses.is_dataclass(rule):
    return {}
  values = {x.name: getattr(rule, x.name) for x in dataclasses.fields(rule)}
  plain = (bool, int, float, str, tuple)
  return {name: x for name, x in values.items() if isinstance(x, plain)}


def _digest(params: types.Params) -> int:
  """Returns the CRC-32 of parameters."""
  return functools.reduce(
    lambda crc, x: zlib.crc32(np.ascontiguousarray(x).data, crc),
    jax.tree.leaves(jax.device_get(params)),
    0,
  )


def name_of(thing: object) -> str:
  """Returns a name of an environment, a rule or a torso, or of its type."""
  while isinstance(thing, functools.partial):
    thing = thing.func
  if isinstance(thing, rules.LoadedRule):
    thing = thing.rule
  if isinstance(thing, (str, os.PathLike)):
    return os.fspath(thing)
  return getattr(thing, '__name__', type(thing).__name__)


def save(
  path: files.PathLike,
  description: Description,
  tree: types.PyTree,
  place: str = '',
) -> None:
  """Writes an agent by `npz.write`.

  Args:
    path: The file, ending in '.npz'.
    description: The description of the agent.
    tree: A tree of arrays and PRNG keys.
    place: The path of this tree within the tree of the whole agent.

  Raises:
    ValueError: The path does not end in '.npz'.
  """
  leaves = checks.leaves(tree, place)
  arrays = {name: np.asarray(files.to_data(x)) for name, x in leaves.items()}
  note = {
    'version': VERSION,
    _PROGRAM: versions.present(),
    **dataclasses.asdict(description),
  }
  npz.write(path, arrays, note)


def save_policy(
  path: files.PathLike, description: Description, params: types.Params
) -> None:
  """Writes only the parameters of an agent; see `save`."""
  save(path, description, params, _PARAMS)


def load(
  path: files.PathLike,
  like: types.PyTree,
  check_description: Callable[[Description], object] = lambda _: None,
) -> tuple[Description, types.PyTree]:
  """Reads the description and the tree in a file.

  Args:
    path: A file that `save` wrote.
    like: A tree of arrays or shapes, with the structure of the saved tree.
    check_description: Called with the description before anything is unpacked;
      raises an error if another agent is expected.

  Returns:
    The description; the tree, bit for bit as it was saved.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, has another tree or version, or has
      parameters that are not finite; the message names a leaf.
  """

  def check(
    headers: Mapping[str, npz.Header], note: Mapping[str, object]
  ) -> None:
    check_description(_describe(path, headers, note))
    headers = _renamed(headers, note)
    _check_same(path, {**_new_arrays(headers, note, like), **headers}, like)

  _check_is_no_folder(path)
  arrays, note = npz.read(path, check)
  arrays = _renamed(arrays, note)
  check_finite(path, _params_of(arrays))
  arrays = {**_new_arrays(arrays, note, like), **arrays}
  return _describe(path, arrays, note), _rebuild(arrays, like)


def _renamed(
  arrays: Mapping[str, _Array], note: Mapping[str, Any]
) -> dict[str, _Array]:
  """Returns arrays by their present names."""
  version = note.get(_PROGRAM)
  return {versions.array_name(name, version): x for name, x in arrays.items()}


def _new_arrays(
  found: Mapping[str, object], note: Mapping[str, Any], like: types.PyTree
) -> dict[str, np.ndarray]:
  """Returns the arrays that the version which wrote a file did not have."""
  new = versions.new_arrays(note.get(_PROGRAM))
  return {
    name: np.zeros(x.shape, x.dtype)
    for name, x in checks.leaves(like).items()
    if name not in found and name.endswith(new)
  }


def read(path: files.PathLike) -> tuple[Description, dict[str, np.ndarray]]:
  """Reads the description of an agent, and its parameters by name.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, or is not an agent file.
  """
  _check_is_no_folder(path)
  arrays, note = npz.read(path, functools.partial(_describe, path))
  return _describe(path, arrays, note), _params_of(_renamed(arrays, note))


def _check_is_no_folder(path: files.PathLike) -> None:
  """Raises IsADirectoryError for the folder of a run instead of a file."""
  if os.path.isdir(path):
    raise IsADirectoryError(
      f'Is a folder, not the file of an agent: {path}. If it holds a run of '
      'disco-rl train, disco_rl.load_agent loads an agent of it.'
    )


def _params_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  return {
    name.removeprefix(_PARAMS): x
    for name, x in arrays.items()
    if name.startswith(_PARAMS)
  }


def rebuild(
  path: files.PathLike, arrays: Mapping[str, np.ndarray], like: types.Params
) -> types.Params:
  """Rebuilds the parameters of a network from the arrays of a file.

  Args:
    path: The file, for the message of an error.
    arrays: The arrays by path in the tree, from `read`.
    like: The shapes of the parameters.

  Raises:
    ArchiveError: The arrays do not match `like`, or have numbers that are not
      finite; the message names a leaf.
  """
  _check_same(path, arrays, like)
  check_finite(path, arrays)
  return _rebuild(arrays, like)


def check_finite(
  path: files.PathLike, params: Mapping[str, np.ndarray]
) -> None:
  """Raises ArchiveError for parameters, by name, that are NaN or infinite."""
  for name, x in params.items():
    # Of all types, also those that NumPy lacks.
    bad = x.size - np.count_nonzero(np.isfinite(np.asarray(x, np.float64)))
    if bad:
      raise npz.ArchiveError(
        f'{path} has {bad} values of {x.size} in {name} that are not finite: '
        'the agent would take the same action whatever it sees. Likely it was '
        'saved after training had diverged, or is damaged: take another file.'
      )


def _describe(
  path: files.PathLike, arrays: Mapping[str, object], note: Mapping[str, Any]
) -> Description:
  """Parses a file's description; raises ArchiveError if there is none."""
  fields = {**note}
  version, program = fields.pop('version', None), fields.pop(_PROGRAM, None)
  if not fields and _OF_0_1 in arrays:
    raise npz.ArchiveError(
      f'{path} was written by version 0.1 of disco_rl, whose agents version '
      f'{versions.present()} cannot read: use that version, or train again.'
    )
  if 'state_outputs' not in fields:
    raise npz.ArchiveError(
      f'{path} does not contain an agent: it lacks the description that '
      'Trainer.save and Policy.save write.'
    )
  if version not in _READ:
    raise npz.ArchiveError(
      f'{path} has version {version} of the format, but this program reads '
      f'versions {_READ[0]} to {_READ[-1]}: load it with the program that '
      f'saved it, {versions.written_by(program)}.'
    )
  known = {*config_lib.names(agent_lib.AgentConfig), 'preprocessing'}
  try:
    description = Description(**fields)
    _check_values(description)
    if description.environment is None:
      known -= {'preprocessing'}
    settings = versions.upgrade(
      {**description.settings, 'preprocessing': description.preprocessing},
      program,
      known,
    )
    preprocessing = settings.pop('preprocessing')
    return dataclasses.replace(
      description, settings=settings, preprocessing=preprocessing
    )
  except (TypeError, ValueError) as error:
    raise npz.ArchiveError(
      f'{path}: the description of the agent is damaged: {error}'
    ) from error


def _check_values(description: Description) -> None:
  """Raises TypeError or ValueError if a file does not describe an agent."""
  config_lib.check_types(description)
  config_lib.check('seed', description.seed, config_lib.CountOrZero)
  config_lib.check('seeds', description.seeds, config_lib.Count)
  for kind, outputs in (
    ('state_outputs', description.state_outputs),
    ('action_outputs', description.action_outputs),
  ):
    for name, width in outputs.items():
      config_lib.check(f'{kind}.{name}', width, config_lib.WidthOrZero)


def compare(
  path: files.PathLike, found: Description, expected: Description
) -> None:
  """Checks that the agent in a file is of the same kind as another.

  The seed may differ, because an agent keeps its random numbers, and so may
  settings that only concern memory and rounding. Names of the user's own
  objects may differ because they do not identify what an object does. A warning
  reports all of these.

  Args:
    path: The file.
    found: The description in the file.
    expected: The description of the other agent.

  Raises:
    ArchiveError: They differ in anything else; the message names it.
  """
  there, here = _facts(found), _facts(expected)
  may_differ = {*_MAY_DIFFER}
  for kind in ('environment', 'rule'):
    if None in (getattr(found, kind), getattr(expected, kind)):
      may_differ.add(kind)
  if None not in (found.rule_digest, expected.rule_digest):
    # A file of a rule may have been moved.
    may_differ.add('rule')
    if found.rule_digest == expected.rule_digest:
      del there['rule']
  # Files of disco_rl 0.2 lack some facts.
  differing = {
    name: f'{name} was {there[name]!r}, is {here[name]!r}'
    for name in there
    if name in here and there[name] != here[name]
  }
  if wrong := [x for name, x in differing.items() if name not in may_differ]:
    raise npz.ArchiveError(
      f'{path} has an agent with other settings: {"; ".join(wrong)}. Load it '
      'into a Trainer with its own, or use disco_rl.load_policy, which only '
      'acts.'
    )
  if differing:
    reports.warn(
      f'{path}: {"; ".join(differing.values())}. The agent continues from its '
      'state in the file, with its random numbers and its latest returns.'
    )


# What may differ between the agent in a file and that of a trainer.
_MAY_DIFFER = ('seed', 'torso', 'torso_chunk_size', 'compute_dtype')


def _facts(description: Description) -> dict[str, Any]:
  """Returns the facts that `compare` compares, as JSON stores them."""
  families = registry.default_preprocessing()
  for family, changes in description.preprocessing.items():
    families[family] = {**families.get(family, {}), **changes}
  facts = {
    'environment': description.environment,
    'rule': description.rule,
    **description.settings,
    **description.objects,
    'seed': description.seed,
    'seeds': description.seeds,
    'the parameters of the rule': description.rule_digest,
    **{f'rule.{name}': x for name, x in description.rule_settings.items()},
    **{
      f'preprocessing.{family}.{name}': value
      for family, changes in families.items()
      for name, value in changes.items()
    },
  }
  known = {name: x for name, x in facts.items() if x is not None}
  return json.loads(json.dumps(known, default=dict))


def _rebuild(
  arrays: Mapping[str, np.ndarray], like: types.PyTree
) -> types.PyTree:
  """Rebuilds the tree with the arrays as leaves."""
  rebuilt = [
    files.from_data(jnp.asarray(arrays[name]), leaf)
    for name, leaf in checks.leaves(like).items()
  ]
  return jax.tree.unflatten(jax.tree.structure(like), rebuilt)


def _check_same(
  path: files.PathLike, found: Mapping[str, Any], like: types.PyTree
) -> None:
  """Raises ArchiveError if the arrays do not match the tree `like`."""
  # In a file, PRNG keys are integers.
  to_data = lambda tree: jax.tree.map(files.to_data, tree)
  expected = checks.leaves(jax.eval_shape(to_data, like))
  if difference := checks.difference(found, expected):
    raise npz.ArchiveError(
      f'{path} {difference}. Likely it was saved with another environment, '
      'rule or settings: load it with the same ones.'
    )
