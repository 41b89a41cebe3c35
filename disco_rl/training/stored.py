"""Reads agents of finished and running trainings from their folders."""

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_collector
from disco_rl.environments import base as environment_base
from disco_rl.environments import registry as environment_registry
from disco_rl.runtime import checkpointing
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.training import evaluator
from disco_rl.training import runner
from disco_rl.update_rules import registry as rule_registry


@dataclasses.dataclass(frozen=True)
class StoredAgent:
  """One agent of a training, from its newest checkpoint.

  Attributes:
    config: The settings of the run.
    rule: The rule that trains it.
    agent: The kind of agent.
    spec: The specification of its environment.
    seed: The agent's seed.
    update: The number of updates of the newest checkpoint.
    environment_steps: The environment steps it has made; if the best parameters
      are asked for, up to these.
    train_state: The state, with a leading axis of one agent. With environments
      on the host it contains only the counts of replay.
  """

  config: training_config.TrainingConfig
  rule: rule_registry.LoadedRule
  agent: agent_lib.Agent
  spec: types.EnvironmentSpec
  seed: int
  update: int
  environment_steps: int
  train_state: agent_lib.AgentState


def setting_names() -> set[str]:
  """Returns the names of the settings that a training may have."""
  return {
    *config_lib.names(training_config.TrainingConfig),
    *rule_registry.setting_names(),
  }


def read_settings(workdir: files.PathLike) -> Mapping[str, object]:
  """Reads the flat settings of a training from its config.json.

  Args:
    workdir: The folder of a run of disco-rl train.

  Raises:
    files.WorkdirError: The folder does not contain such a run, contains a pipe
      or a device, or has names registered by modules that are not imported.
    ValueError: It has settings that this version does not know.
  """
  workdirs.check_holds_run(pathlib.Path(workdir), 'disco-rl train')
  try:
    settings = forks.read_settings(pathlib.Path(workdir), setting_names())
  except OSError as error:
    raise files.WorkdirError(
      f'{workdir} holds no run of disco-rl train: {error}'
    ) from error
  if 'environment' not in settings:
    raise files.WorkdirError(
      f'{workdir} holds no single run of disco-rl train: name the folder of '
      'one run.'
    )
  files.check_tree(pathlib.Path(workdir), is_written=False)
  workdirs.check_imports(pathlib.Path(workdir))
  return settings


def read(
  workdir: files.PathLike, seed: int | None = None, best: bool = False
) -> StoredAgent:
  """Reads an agent from the newest checkpoint; changes nothing in the folder.

  Args:
    workdir: The folder of a run of disco-rl train.
    seed: The seed of the agent; None: the first, or the best of all.
    best: Whether to take the parameters of its best evaluation.

  Raises:
    ValueError: The folder contains no run, the run has no agent with this seed,
      or has not evaluated its agents yet.
    checkpointing.CheckpointError: The run has no checkpoint that can be read.
    FileNotFoundError: The file of its rule no longer exists.
    ImportError: A package that the environment needs is not installed.
  """
  config, rule = _resolve(workdir)
  index = 0 if seed is None else seed - config.seed
  if not 0 <= index < config.seeds:
    raise ValueError(
      f'{workdir} has no agent with seed {seed}: the seeds of its agents are '
      f'{config.seed} to {config.seed + config.seeds - 1}.'
    )
  everyone, found = _newest(workdir, config, rule, best)
  if not best:
    return _select(everyone, index)
  if found is None or not np.isfinite(found.mean_return).any():
    raise ValueError(
      f'{workdir} has no best agent: none has been evaluated yet. '
      '--config.evaluate_every=STEPS evaluates them during training.'
    )
  if seed is None:
    index = int(np.argmax(found.mean_return))
  one = _select(everyone, index)
  params = jax.tree.map(lambda x: x[index : index + 1], found.params)
  learner = dataclasses.replace(one.train_state.learner, params=params)
  return dataclasses.replace(
    one,
    environment_steps=int(found.environment_steps[index]),
    train_state=dataclasses.replace(one.train_state, learner=learner),
  )


def read_all(workdir: files.PathLike) -> list[StoredAgent]:
  """Reads all agents from the same checkpoint; see `read`."""
  config, rule = _resolve(workdir)
  everyone, _ = _newest(workdir, config, rule)
  return [_select(everyone, index) for index in range(config.seeds)]


def _resolve(
  workdir: files.PathLike,
) -> tuple[training_config.TrainingConfig, rule_registry.LoadedRule]:
  """Returns the settings of a run, and its rule."""
  settings = read_settings(workdir)
  try:
    return training_config.resolve(settings)
  except ValueError as error:
    raise ValueError(
      f'{workdir}, {workdirs.written_by(pathlib.Path(workdir))}: {error}'
    ) from error


def _newest(
  workdir: files.PathLike,
  config: training_config.TrainingConfig,
  rule: rule_registry.LoadedRule,
  best: bool = False,
) -> tuple[StoredAgent, evaluator.Best | None]:
  """Reads the newest checkpoint.

  Returns:
    All agents, as if they were one whose state has a leading axis of them; and
    the best policies, if they are asked for and there are any.
  """
  spec, environment = environment_registry.specimen(
    config.environment, config.preprocessing
  )
  agent = agent_lib.make(config.agent, spec, rule.rule)
  like: dict[str, Any] = {
    runner.TRAIN_STATE: _shapes(agent, environment, config.seeds),
    'seconds': np.zeros(()),
    runner.STEPS: np.zeros((), np.int64),
  }
  if best:
    params = like[runner.TRAIN_STATE].learner.params
    like[runner.BEST] = evaluator.no_best(params)
  update, tree = checkpointing.read(
    pathlib.Path(workdir) / 'checkpoints',
    like,
    optional=[runner.STEPS, runner.BEST],
  )
  everyone = StoredAgent(
    config,
    rule,
    agent,
    spec,
    config.seed,
    update,
    runner.steps_of(config, update, tree),
    tree[runner.TRAIN_STATE],
  )
  return everyone, tree.get(runner.BEST) if best else None


def _select(everyone: StoredAgent, index: int) -> StoredAgent:
  """Returns one of the agents that `_newest` has read."""
  return dataclasses.replace(
    everyone,
    seed=everyone.seed + index,
    train_state=jax.tree.map(
      lambda x: x[index : index + 1], everyone.train_state
    ),
  )


def _shapes(
  agent: agent_lib.Agent,
  environment: environment_base.JaxEnvironment | None,
  num_agents: int,
) -> agent_lib.AgentState:
  """Returns the shapes of S agents in checkpoints.

  Without a JAX environment, agents act on the host.
  """

  def init(key: types.Array) -> agent_lib.AgentState:
    if environment is None:
      return host_collector.init(agent, key)
    return agent.init(key, key, environment)

  return jax.eval_shape(jax.vmap(init), _key_shapes(num_agents))


def _key_shapes(number: int) -> types.PyTree:
  """Returns the shapes of PRNG keys [S]."""
  return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), number))
