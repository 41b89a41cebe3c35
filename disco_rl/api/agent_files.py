"""Agent files: npz archives of an agent's arrays, with its description.

A file contains a tree of arrays, each under its path in the tree. A policy's
file contains only the parameters, under the same names as in a trainer's file.
The description is the note of the archive; see `runtime.npz`.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.api import checks
from disco_rl.api import rules
from disco_rl.environments import registry
from disco_rl.networks import torsos
from disco_rl.runtime import files
from disco_rl.runtime import npz

# The version of the format that this module writes and reads.
VERSION = 1
# The key of the training state in the tree, and the path of theta.
STATE = 'train_state'
_PARAMS = f"['{STATE}'].agents.learner.params"


@dataclasses.dataclass(frozen=True)
class Description:
  """The description of an agent.

  Attributes:
    environment: The name of the environment; None for the user's own object.
    preprocessing: Changes to environments; see `environments.registry.make`.
    rule: The name or path of the rule; None for the user's own object.
    rule_settings: The settings that were given for the rule.
    seed: The seed of the agent.
    settings: The flat settings of `AgentConfig`; torso is None if it is a
      function.
    state_outputs: The heads of the state, `OutputSpec.state`.
    action_outputs: The heads of the actions, `OutputSpec.action`.
  """

  environment: str | None
  preprocessing: registry.Preprocessing
  rule: str | None
  rule_settings: Mapping[str, object]
  seed: int
  settings: Mapping[str, object]
  state_outputs: Mapping[str, int]
  action_outputs: Mapping[str, int]

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
  """Describes an agent; functions and objects become None."""
  outputs = rule.output_spec(spec.num_actions)
  settings = config_lib.flatten(config)
  if not isinstance(settings['torso'], str):
    settings['torso'] = None
  return Description(
    environment=environment if isinstance(environment, str) else None,
    preprocessing=preprocessing,
    rule=rule.name,
    rule_settings=rule.settings,
    seed=seed,
    settings=settings,
    state_outputs=outputs.state,
    action_outputs=outputs.action,
  )


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
  note = {'version': VERSION, **dataclasses.asdict(description)}
  npz.write(path, arrays, note)


def save_policy(
  path: files.PathLike, description: Description, params: types.Params
) -> None:
  """Writes only the parameters of an agent; see `save`."""
  save(path, description, params, _PARAMS)


def load(path: files.PathLike, like: types.PyTree) -> types.PyTree:
  """Reads the tree in a file.

  Args:
    path: A file that `save` wrote.
    like: A tree of arrays or shapes, with the structure of the saved tree.

  Returns:
    The tree, bit for bit as it was saved.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, has another tree or version, or has
      parameters that are not finite; the message names a leaf.
  """

  def check(
    headers: Mapping[str, npz.Header], note: Mapping[str, object]
  ) -> None:
    _describe(path, note)
    _check_same(path, headers, like)

  arrays = npz.read(path, check)[0]
  check_finite(path, _params_of(arrays))
  return _rebuild(arrays, like)


def read(path: files.PathLike) -> tuple[Description, dict[str, np.ndarray]]:
  """Reads the description of an agent, and its parameters by name.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, or is not an agent file.
  """
  arrays, note = npz.read(path, lambda _, note: _describe(path, note))
  return _describe(path, note), _params_of(arrays)


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


def _describe(path: files.PathLike, note: Mapping[str, Any]) -> Description:
  """Parses a file's description; raises ArchiveError if there is none."""
  fields = {**note}
  version = fields.pop('version', None)
  if 'state_outputs' not in fields:
    raise npz.ArchiveError(
      f'{path} does not contain an agent: it lacks the description that '
      'Trainer.save and Policy.save write.'
    )
  if version != VERSION:
    raise npz.ArchiveError(
      f'{path} has version {version} of the format, but this program reads '
      f'version {VERSION}: load it with the program that saved it.'
    )
  try:
    description = Description(**fields)
    _check_values(description)
    return description
  except (TypeError, ValueError) as error:
    raise npz.ArchiveError(
      f'{path}: the description of the agent is damaged: {error}'
    ) from error


def _check_values(description: Description) -> None:
  """Raises TypeError or ValueError if a file does not describe an agent."""
  config_lib.check_types(description)
  config_lib.check('seed', description.seed, config_lib.CountOrZero)
  for kind, outputs in (
    ('state_outputs', description.state_outputs),
    ('action_outputs', description.action_outputs),
  ):
    for name, width in outputs.items():
      config_lib.check(f'{kind}.{name}', width, config_lib.WidthOrZero)


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
