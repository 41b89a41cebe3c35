"""Agents of finished and running evaluations, read from their folders."""

from collections.abc import Mapping
import dataclasses
import pathlib
import sys
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base as environment_base
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import base
from disco_rl.evaluation import runner
from disco_rl.runtime import checkpointing
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import workdirs
from disco_rl.update_rules import registry as rule_registry


@dataclasses.dataclass(frozen=True)
class StoredAgent:
  """One agent of an evaluation, as its newest checkpoint holds it.

  Attributes:
    seed: The agent's seed.
    update: number of its updates.
    train_state: with a leading axis of one agent. Of replay beside environments
      on the host it holds the counts alone.
  """

  seed: int
  update: int
  train_state: base.TrainState


def read_config(workdir: files.PathLike) -> runner.EvaluationConfig:
  """Reads the settings of an evaluation.

  Args:
    workdir: folder of a run of disco-rl evaluate.

  Raises:
    files.WorkdirError: the folder holds no such run.
    ValueError: it has settings that this version does not know, or names that
      modules register which have not been imported.
  """
  try:
    settings = forks.read_settings(pathlib.Path(workdir))
  except OSError as error:
    raise files.WorkdirError(
      f'{workdir} holds no run of disco-rl evaluate: {error}'
    ) from error
  if 'environment' not in settings:
    raise files.WorkdirError(
      f'{workdir} holds no single run of disco-rl evaluate: name the folder of '
      'one run.'
    )
  modules = workdirs.imports(pathlib.Path(workdir))
  if missing := [name for name in modules if name not in sys.modules]:
    raise ValueError(
      f'The run in {workdir} has names that {", ".join(missing)} registers: '
      'import it before, as --import did.'
    )
  return runner.config_of(settings)


def read_agent(
  workdir: files.PathLike,
  config: runner.EvaluationConfig,
  agent: agent_lib.Agent,
  environment: environment_base.JaxEnvironment
  | environment_base.HostEnvironment,
  seed: int | None = None,
) -> StoredAgent:
  """Reads an agent from the newest checkpoint; changes nothing in the folder.

  Args:
    workdir: folder of the run.
    config: The config of the run.
    agent: An agent of its kind.
    environment: one like those of the run.
    seed: The agent's seed, config.seed to config.seed + config.seeds - 1; None:
      the first.

  Returns:
    The agent.

  Raises:
    ValueError: the run has no agent with this seed.
    checkpointing.CheckpointError: the run has no checkpoint that can be read.
  """
  seed = config.seed if seed is None else seed
  index = seed - config.seed
  if not 0 <= index < config.seeds:
    raise ValueError(
      f'{workdir} has no agent with seed {seed}: the seeds of its agents are '
      f'{config.seed} to {config.seed + config.seeds - 1}.'
    )
  like = {
    runner.TRAIN_STATE: _shapes(agent, environment, config.seeds),
    'seconds': np.zeros(()),
  }
  update, tree = checkpointing.read(pathlib.Path(workdir) / 'checkpoints', like)
  return StoredAgent(
    seed=seed,
    update=update,
    train_state=jax.tree.map(
      lambda x: x[index : index + 1], tree[runner.TRAIN_STATE]
    ),
  )


def _shapes(
  agent: agent_lib.Agent,
  environment: environment_base.JaxEnvironment
  | environment_base.HostEnvironment,
  num_agents: int,
) -> base.TrainState:
  """Shapes of the state of S agents, as checkpoints hold it."""

  def init(key: types.Array) -> base.TrainState:
    agents = agent.init(key)
    if isinstance(environment, environment_base.JaxEnvironment):
      return base.TrainState(agents, agent.init_actor(key, environment))
    counts: Any = dict.fromkeys(('start', 'added'), np.zeros((), np.int32))
    params = agents.learner.params
    return base.TrainState(dataclasses.replace(agents, replay=counts), params)

  keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_agents))
  return jax.eval_shape(jax.vmap(init), keys)


def kept_by_forks(settings: Mapping[str, Any]) -> Any:
  """What a fork of an evaluation must have in common with its source.

  Args:
    settings: flat, of the fork or of its source.

  Returns:
    The shapes of the agents, their replay and their environments, and the seed:
    agents keep the random numbers that they began with.

  Raises:
    ValueError: a setting is not valid.
  """
  config = runner.config_of(settings)
  rule, _ = rule_registry.load(config.rule, **config.rule_settings)
  environment = environment_registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  if isinstance(environment, environment_base.HostEnvironment):
    environment.close()
  # Shapes do not depend on chunks, whose size may be automatic.
  chunked = next(config.agent.chunkings())
  agent = agent_lib.make(chunked, environment.spec, rule)
  keys = jax.eval_shape(
    lambda: jax.random.split(jax.random.key(0), config.seeds)
  )
  # With replay in any case, whose files have rows of that size.
  agents = jax.eval_shape(jax.vmap(agent.init), keys)
  shapes = agents, _shapes(agent, environment, config.seeds).actors
  described = {
    jax.tree_util.keystr(path): (leaf.shape, str(leaf.dtype))
    for path, leaf in jax.tree.leaves_with_path(shapes)
  }
  return config.seed, described
