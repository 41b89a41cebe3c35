"""Files of agents: npz archives of their arrays with a description.

A file contains a tree of arrays, each under its path in the tree. The file of a
policy contains only the parameters, under the same names as in the file of a
trainer. The note of the file is the description.
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
# The paths of the state of training in the tree, and of theta.
STATE = 'train_state'
_PARAMS = f"['{STATE}'].agents.learner.params"


@dataclasses.dataclass(frozen=True)
class Description:
  """The description of an agent.

  Attributes:
    environment: The name of the environment; None: an object of the user's own.
    preprocessing: Changes of environments; see `environments.registry.make`.
    rule: The name or path of the rule; None: an object of the user's own.
    rule_settings: The fields of the rule's class.
    seed: The seed of the agent.
    settings: The flat settings of `AgentConfig`; torso is None for a function.
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
      torso: The torso instead of the described one; required if the agent's
        torso is a function.

    Raises:
      ValueError: A setting is not valid, or the torso is missing.
    """
    settings = {**self.settings}
    if torso is not None:
      settings['torso'] = torso
    if settings['torso'] is None:
      raise ValueError(
        'The agent has a torso of your own, which no file can hold: pass the '
        'function as torso=... to disco_rl.load_policy or disco_rl.Trainer.'
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
  """Describes an agent, as far as a file can contain it."""
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
    place: The path of this tree in that of the whole agent.

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
  """Reads a tree.

  Args:
    path: A file that `save` wrote.
    like: A tree of arrays, or of their shapes, of the same structure.

  Returns:
    The tree, bit for bit as it was saved.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, or has another tree or version; the
      message names a leaf that differs.
  """

  def check(
    headers: Mapping[str, npz.Header], note: Mapping[str, object]
  ) -> None:
    _describe(path, note)
    _check_same(path, headers, like)

  return _rebuild(npz.read(path, check)[0], like)


def read(path: files.PathLike) -> tuple[Description, dict[str, np.ndarray]]:
  """Reads the description of an agent, and its parameters by name.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is damaged, or not of an agent.
  """
  arrays, note = npz.read(path, lambda _, note: _describe(path, note))
  return _describe(path, note), {
    name.removeprefix(_PARAMS): x
    for name, x in arrays.items()
    if name.startswith(_PARAMS)
  }


def rebuild(
  path: files.PathLike, arrays: Mapping[str, np.ndarray], like: types.Params
) -> types.Params:
  """Rebuilds parameters of the shapes `like` from arrays by name.

  Raises:
    ArchiveError: They differ from `like`; the message names a leaf and the
      path.
  """
  _check_same(path, arrays, like)
  return _rebuild(arrays, like)


def _describe(path: files.PathLike, note: Mapping[str, Any]) -> Description:
  """Parses the description in a file; raises ArchiveError without one."""
  fields = {**note}
  version = fields.pop('version', None)
  if 'state_outputs' not in fields:
    raise npz.ArchiveError(
      f'{path} does not contain an agent: it lacks the description that '
      'Trainer.save and Policy.save write.'
    )
  if version != VERSION:
    raise npz.ArchiveError(
      f'{path} is of version {version} of the format, and this program reads '
      f'version {VERSION}: load it with the program that saved it.'
    )
  try:
    return Description(**fields)
  except TypeError as error:
    raise npz.ArchiveError(
      f'{path}: the description of the agent is damaged: {error}'
    ) from error


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
  """Raises ArchiveError if the arrays are not those of the tree `like`."""
  # In a file, PRNG keys are integers.
  to_data = lambda tree: jax.tree.map(files.to_data, tree)
  expected = checks.leaves(jax.eval_shape(to_data, like))
  if difference := checks.difference(found, expected):
    raise npz.ArchiveError(
      f'{path} {difference}. Likely it was saved with another environment, '
      'another rule or other settings: load it with those.'
    )
