"""Loads agents from files, and from the folders of runs."""

import dataclasses
import os
import pathlib
from typing import Any

import jax

from disco_rl import config as config_lib
from disco_rl.api import agent_files
from disco_rl.api import policy as policy_lib
from disco_rl.api import trainer as trainer_lib
from disco_rl.environments import family
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import files
from disco_rl.runtime import reports
from disco_rl.training import checks
from disco_rl.training import player as player_lib
from disco_rl.training import stored
from disco_rl.update_rules import hub
from disco_rl.update_rules import sources


def load_policy(
  path: files.PathLike,
  *,
  seed: int | None = None,
  best: bool = False,
  environment: object = None,
  torso: torsos.Torso | None = None,
) -> policy_lib.Policy:
  """Loads a policy from a file or from a run, which may continue.

  Args:
    path: A file written by `Policy.save` or `Trainer.save`; the folder of a run
      of disco-rl train, whose newest checkpoint is read; or the address of
      such a file on a hub, hf://OWNER/REPOSITORY/PATH.npz#sha256=DIGEST.
    seed: The seed of one of several agents; None: the first, or the best of
      all.
    best: Whether to take the agent of a run as it was in its best evaluation;
      needs the run's setting evaluate_every.
    environment: The environment, as for `Trainer`, instead of the stored one;
      the stored preprocessing applies to a name. Required if the agent's
      environment was an object, or if its name gymnasium/MODULE:ID needs a
      module that you have not imported: names in files import nothing.
    torso: The agent's torso, if it is a function; not for a run.

  Returns:
    The policy.

  Raises:
    FileNotFoundError: The file or folder, or the file of a run's rule, does not
      exist.
    OSError: A download failed.
    TypeError: The kind of environment is not supported.
    ValueError: The file is damaged or not an agent file, the folder does not
      contain a run, the environment or torso of the agent is unknown or does
      not fit its parameters, a torso is given for a run or `best` for a file,
      or there is no such agent.
    checkpointing.CheckpointError: The run has no checkpoint that can be read.
    ImportError: A package that the environment or the address needs is not
      installed.
  """
  if hub.is_address(os.fspath(path)):
    path = sources.locate(os.fspath(path))
  path = files.expanded(path)
  if not path.exists():
    raise FileNotFoundError(
      f'{path} does not exist: name the file of an agent, or the folder of a '
      'run of disco-rl train.'
    )
  description, arrays = _read(path, seed, best, torso is not None)
  if environment is None:
    environment = description.environment
  else:
    _report_change(path, description, environment)
    if isinstance(environment, str):
      registry.import_module(environment)
  if environment is None:
    raise ValueError(
      f'The agent in {path} was trained in your own environment object: pass '
      'it as environment=... to disco_rl.load_policy.'
    )
  # An object has its own preprocessing.
  preprocessing: registry.Preprocessing = (
    description.preprocessing if isinstance(environment, str) else {}
  )
  config = description.config(torso)
  own = _make_one(environment, preprocessing)
  network = agent_network.make(
    own.spec, description.output_spec, config.network
  )
  like = jax.eval_shape(
    lambda: jax.tree.map(lambda x: x[None], network.init(jax.random.key(0)))
  )
  return policy_lib.Policy(
    description,
    agent_files.rebuild(path, arrays, like),
    player_lib.Player(network, own, environment, preprocessing),
  )


def load_agent(
  workdir: files.PathLike, *, seed: int | None = None
) -> trainer_lib.Trainer:
  """Loads an agent of a run of disco-rl train, to be trained further.

  The agent keeps its parameters, the states of its optimizer and its rule, its
  random numbers and, in JAX-native environments, its replay and environments:
  it continues to learn as in the run, up to rounding. With environments on the
  host, replay is empty at first.

  Args:
    workdir: The folder of the run, which may continue; it is not changed.
    seed: The seed of the agent; None: the first agent of the run.

  Returns:
    The agent, as in the newest checkpoint.

  Raises:
    ValueError: The folder does not contain a run, or the run has no such agent.
    checkpointing.CheckpointError: The run has no checkpoint that can be read.
    FileNotFoundError: The file of its rule no longer exists.
    ImportError: A package that the environment needs is not installed.
  """
  workdir = files.expanded(workdir)
  one = stored.read(workdir, seed)
  agent_files.check_finite(workdir, _params_of(one))
  settings = config_lib.flatten(one.config.agent)
  del settings['replay_on_disk']  # The trainer has no folder.
  trainer = trainer_lib.Trainer(
    one.config.environment,
    one.rule,
    seed=one.seed,
    preprocessing=one.config.preprocessing,
    **settings,
  )
  trainer.take_over(one.train_state, one.update, one.environment_steps)
  return trainer


def _report_change(
  path: pathlib.Path, description: agent_files.Description, given: object
) -> None:
  """Reports that an agent acts in another environment than it learned in."""
  objects = description.objects
  there = description.environment or objects.get('environment')
  here = agent_files.name_of(given)
  if there is not None and there != here:
    reports.warn(
      f'The agent in {path} was trained in {there}, and acts in {here}.'
    )


def _read(
  path: pathlib.Path, seed: int | None, best: bool, has_torso: bool
) -> tuple[agent_files.Description, dict[str, Any]]:
  """Reads an agent of a file or a run, and its parameters by name."""
  if path.is_dir():
    if has_torso:
      raise ValueError(
        f'{path} is the folder of a run, whose settings name the torso: leave '
        'out torso=...'
      )
    one = stored.read(path, seed, best)
    description = agent_files.describe(
      one.config.environment,
      one.config.preprocessing,
      one.rule,
      one.seed,
      one.config.agent,
      one.spec,
    )
    description = dataclasses.replace(
      description, environment_steps=one.environment_steps
    )
    return description, _params_of(one)
  if best:
    raise ValueError(
      f'{path} is a file: only the folders of runs have the best agent.'
    )
  description, arrays = agent_files.read(path)
  first, number = description.seed, description.seeds
  index = 0 if seed is None else seed - first
  if not 0 <= index < number:
    raise ValueError(
      f'{path} has no agent with seed {seed}: the seeds of its agents are '
      f'{first} to {first + number - 1}.'
    )
  if number > 1:
    arrays = {name: x[index : index + 1] for name, x in arrays.items()}
    description = dataclasses.replace(description, seed=first + index, seeds=1)
  return description, arrays


def _params_of(one: stored.StoredAgent) -> dict[str, Any]:
  """Returns the parameters of an agent of a run, by name."""
  return checks.leaves(one.train_state.learner.params)


def _make_one(
  given: object, preprocessing: registry.Preprocessing
) -> family.Environment:
  """Makes an environment; one on the host is closed, but its spec is valid."""
  source = wrapping.recognize(given, preprocessing)
  environment = source.build(source.num_environments or 1, 0)
  # Do not close an environment that is an object: others may be using it.
  if source.num_environments is None:
    environment.close()
  return environment
