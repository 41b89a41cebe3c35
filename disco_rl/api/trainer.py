"""Trains one agent, acts with it, saves and loads it."""

from collections.abc import Callable
import dataclasses
import functools
import os
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_collector
from disco_rl.agent import resolution
from disco_rl.api import agent_files
from disco_rl.api import player as player_lib
from disco_rl.api import policy as policy_lib
from disco_rl.api import rule_checks
from disco_rl.api import rules
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.evaluation import train_loop
from disco_rl.evaluation import training
from disco_rl.networks import torsos
from disco_rl.runtime import backend
from disco_rl.runtime import compilation_cache
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import npz
from disco_rl.runtime import reports
from disco_rl.runtime import signals
from disco_rl.update_rules import base as rule_base


class Trainer(policy_lib.Acting):
  """One agent that learns by a rule, in a named environment or your own.

  With environments on the host, use it as a context manager, or call `close`.

  Attributes:
    spec: The shapes of observations and actions, as the agent sees them.
    config: The settings of the agent, including defaults.
    updates: The number of updates so far.
  """

  spec: types.EnvironmentSpec
  config: agent_lib.AgentConfig
  updates: int

  def __init__(
    self,
    environment: object,
    rule: files.PathLike | rule_base.UpdateRule | rules.LoadedRule = 'disco103',
    *,
    torso: str | torsos.Torso | None = None,
    sizes: str = 'task',
    seed: int = 0,
    num_environments: int | None = None,
    preprocessing: registry.Preprocessing = registry.NO_CHANGES,
    **settings: object,
  ):
    """Initializes an agent and its environments.

    Args:
      environment: One of

        - a name, which `disco-rl list-environments` lists;
        - a function that makes a Gymnasium or dm_env environment. It is called
          without arguments, or with a seed if it has an argument `seed`, which
          `functools.partial` has not set, or a first one without a default;
        - an environment or a vector environment of Gymnasium, or an environment
          of dm_env, which from then on only the trainer may use;
        - an environment in the style of gymnax, or one of navix, xminigrid,
          pgx (with one player) or jumanji; or a pair of such an environment and
          its parameters (None: its defaults);
        - a `JaxEnvironment` or `HostEnvironment` of `environments.base`.
      rule: An argument or a result of `load_rule`.
      torso: 'mlp', 'impala', 'resnet', 'nethack', one that you registered, or
        a function of your own that may use Haiku: observations whose leaves
        have a leading axis N -> embeddings [N, width]; None: a small network
        that suits the observations.
      sizes: 'task' for an agent that suits the rule and the task; 'paper' for
        the large agents of the paper.
      seed: The seed of all random numbers.
      num_environments: The number of parallel environments; None: that of
        `environment` if it is an object on the host, otherwise a number that
        suits the rule and batch_size.
      preprocessing: Changes to a named environment, such as {'atari':
        {'frame_skip': 1}}; see `environments.registry.make`.
      **settings: Fields of `agent.AgentConfig` (unroll_length, batch_size,
        on_policy_share, replay_capacity, learning_rate, ...), of
        `agent_network.AgentNetworkConfig` (core_lstm, action_model_lstm, ...)
        and of `torsos.TorsoConfig` (channels, hidden_sizes, its chunk_size as
        torso_chunk_size). The others follow from the rule's card, then from the
        size of the task; see `agent.resolution`.

    Raises:
      TypeError: The kind of environment is not supported.
      ValueError: A name or a setting is not valid, or the environment's
        observations or actions are not supported.
      ImportError: A package that the environment needs is not installed.
      FileNotFoundError: The file of weights does not exist.
      OSError: The download of a rule failed.
      adapters.HostEnvironmentError: An environment on the host raised.
    """
    compilation_cache.leave_loops_rolled()
    backend.check_settings()
    seed = config_lib.valid('seed', seed, config_lib.CountOrZero)
    preprocessing = config_lib.plain(preprocessing)
    config_lib.check('sizes', sizes, resolution.Sizes)
    # Replay on disk needs the folder of a run.
    known = {*config_lib.names(agent_lib.AgentConfig)} - {'replay_on_disk'}
    config_lib.check_names(settings, known, 'Trainer')
    self._names = ' '.join(map(agent_files.name_of, (environment, rule)))
    loaded = rules.load_rule(rule)
    if isinstance(environment, str):
      registry.import_module(environment)
    source = wrapping.recognize(environment, preprocessing)
    number = _resolve(num_environments, source.num_environments)
    folder = _working_directory()
    loaded, self.config, self._environment = resolution.resolve_and_make(
      loaded,
      {**settings, 'torso': torso, 'num_environments': number},
      lambda number: source.build(number, seed),
      sizes,
    )
    if (now := _working_directory()) != folder:
      reports.warn(
        f'making the environment changed the working directory from {folder} '
        f'to {now}: relative paths, as of `save`, refer to that folder '
        'from now on.'
      )
    self.spec = self._environment.spec
    self._initialize(environment, preprocessing, loaded, seed)

  def _initialize(
    self,
    given: object,
    preprocessing: registry.Preprocessing,
    rule: rules.LoadedRule,
    seed: int,
  ) -> None:
    """Initializes the agent, its training and its player."""
    self._made_from = given, preprocessing, rule, seed
    compilation_cache.use_default_folder()
    self.updates = self._steps = 0
    rule_checks.check_rule(rule.rule, rule.params, self.spec)
    agent = agent_lib.make(self.config, self.spec, rule.rule)
    # Errors about shapes are raised before anything is compiled.
    jax.eval_shape(agent.init, jax.random.key(0))
    self._description = agent_files.describe(
      given, preprocessing, rule, seed, self.config, self.spec
    )
    self._rule_params = jax.device_put(rule.params)
    self._driver = training.make(agent, self._environment, num_agents=1)
    self._player = player_lib.Player(
      agent.network, self._environment, given, preprocessing
    )
    self._memory = player_lib.Memory(player_lib.action_keys(seed)[0])
    self._train_state = self._driver.init(jax.random.key(seed)[None])
    self._is_closed = self._is_training = False

  def train(
    self,
    updates: int,
    log_every: int = 10,
    *,
    save_to: files.PathLike | None = None,
    save_every: int = 100,
    callback: Callable[[train_loop.Row], None] | None = None,
    show_progress: bool = True,
  ) -> dict[str, np.ndarray]:
    """Trains the agent, by rollouts in all environments and updates.

    If an environment raises, or after an interrupt from the keyboard, the agent
    has the state of the last complete update: it can be saved, and trained
    further in new episodes. JAX-native environments make updates for about a
    second at a time; if one raises within its compiled program, the agent is
    lost.

    Args:
      updates: The number of further updates, a multiple of
        `updates_per_rollout`, to which log_every and save_every are rounded up.
      log_every: The number of updates between two entries of the metrics. Host
        environments step while the device learns, except in the first rollout
        of each entry.
      save_to: The path for `save`; None: nothing is saved.
      save_every: The number of updates between two saves, which overwrite the
        file. The last update, or the last before an error, is also saved.
      callback: Called with a copy of each entry of the metrics, name -> value.
        It may save the agent, act and evaluate, but not train or load it.
      show_progress: Whether to show a bar on the standard error stream.

    Returns:
      Metrics as arrays, with an entry after every `log_every` updates, at every
      save and at the end: `update`, `environment_steps`, `episodes` (finished
      so far), `return` (mean of the last 100 episodes, NaN before the first
      ends), and metrics of the rule, means over these updates.

    Raises:
      ValueError: An argument is not valid.
      RuntimeError: The trainer is closed or training, or its agent was lost.
      OSError: The file cannot be written.
      adapters.HostEnvironmentError: An environment on the host raised.
      metrics.NonFiniteError: A loss is no longer finite.
      KeyboardInterrupt: The user interrupted; raised after the current update.
    """
    updates, log_every, save_every = self._check_training(
      updates, log_every, save_to, save_every
    )
    # Environments may change the working directory.
    save_to = None if save_to is None else files.expanded(save_to)
    rows: list[train_loop.Row] = []

    def on_stage(stage: train_loop.Stage) -> None:
      since, self.updates = self.updates, stage.update
      self._steps = stage.environment_steps
      self._train_state = stage.train_state
      causes = functools.partial(train_loop.likely_causes, stage.train_state)
      metrics.check_finite(stage.rows, since, causes)
      rows.extend(stage.rows)
      if save_to and (stage.is_last or stage.update % save_every == 0):
        self.save(save_to)
      if callback is not None:
        for row in stage.rows:
          callback(dict(row))

    every = (log_every, save_every) if save_to else (log_every,)
    train_state = self._get_train_state()
    self._is_training = True
    try:
      with signals.Requests(ends_program=False) as requests:
        requests.listen()
        train_loop.train(
          self._driver,
          self._rule_params,
          train_state,
          train_loop.UpdateRange(
            self.updates, self.updates + updates, every, self._steps
          ),
          on_stage,
          lambda: requests.received is not None,
          self._names,
          show_progress,
        )
    finally:
      self._is_training = False
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}

  def _check_training(
    self,
    updates: int,
    log_every: int,
    save_to: files.PathLike | None,
    save_every: int,
  ) -> tuple[int, int, int]:
    """Raises the errors of `train` that are known in advance.

    Returns:
      The three numbers, rounded.
    """
    if self._is_closed:
      raise RuntimeError('The trainer is closed: make a new one to train.')
    self._check_idle()
    backend.check_settings()
    updates = config_lib.valid('updates', updates, config_lib.Count)
    log_every = config_lib.valid('log_every', log_every, config_lib.Count)
    save_every = config_lib.valid('save_every', save_every, config_lib.Count)
    self.config.rollouts(updates)
    if save_to is not None:
      npz.check_name(save_to)
      files.check_writable(save_to)
    whole = self.config.whole
    return updates, whole(log_every), whole(save_every)

  def _check_idle(self) -> None:
    """Raises RuntimeError during `train`, whose state would be replaced."""
    if self._is_training:
      raise RuntimeError(
        'The trainer is training: train or load its agent after `train` has '
        'returned, not in the callback or in another thread; or make a second '
        'Trainer.'
      )

  def policy(self) -> policy_lib.Policy:
    """Returns the current policy, without the state for learning."""
    params = host_collector.copy_params(self._current_params())
    return policy_lib.Policy(self._describe(), params, self._player)

  def save(self, path: files.PathLike) -> None:
    """Saves the agent and the state of training, except host environments.

    Args:
      path: The file, ending in '.npz'.

    Raises:
      ValueError: The path does not end in '.npz'.
      OSError: The file cannot be written.
      RuntimeError: The agent was lost; see `train`.
    """
    self._get_train_state()
    agent_files.save(path, self._describe(), self._saved())

  def load(self, path: files.PathLike) -> None:
    """Loads a file saved by a trainer with the same environment and settings.

    Training continues exactly where it was; host environments are reset. A
    warning reports another seed, or an environment object with another name.

    Args:
      path: The file.

    Raises:
      FileNotFoundError: The file does not exist.
      ValueError: The file is damaged, or was saved with another environment,
        rule or setting, which the message names.
      RuntimeError: The trainer is training.
    """
    self._check_idle()
    found, saved = agent_files.load(
      path,
      self._saved(),
      lambda found: agent_files.compare(path, found, self._description),
    )
    self._train_state = self._driver.from_file(
      saved[agent_files.STATE], saved['replay']
    )
    self.updates = int(saved['updates'])
    steps = found.environment_steps
    if steps is None:  # Saved by disco_rl 0.2.
      steps = self._driver.agent.environment_steps(self.updates)
    self._steps = steps
    self._memory.reset_core()

  def take_over(
    self,
    train_state: training.TrainState,
    updates: int,
    environment_steps: int,
  ) -> None:
    """Replaces the agent with another of the same kind; see `load_agent`.

    Args:
      train_state: The state, with a leading axis of one agent. With
        environments on the host its replay is not kept, and new episodes begin.
      updates: The number of updates that it has made.
      environment_steps: The environment steps that it has made.
    """
    if isinstance(self._environment, base.HostEnvironment):
      replay = self._train_state.agents.replay
      agents = dataclasses.replace(train_state.agents, replay=replay)
      train_state = dataclasses.replace(train_state, agents=agents)
    self._train_state = self._driver.resume(train_state)
    self.updates, self._steps = updates, environment_steps
    self._memory.reset_core()

  def close(self) -> None:
    """Closes host environments; the agent cannot be trained afterwards."""
    if self._is_closed:
      return
    self._is_closed = True
    if isinstance(self._environment, base.HostEnvironment):
      self._environment.close()

  def __copy__(self) -> Self:
    """Copies the agent and the state of training.

    Environments on the host are made anew, and begin new episodes in the copy,
    whose programs are compiled again.

    Raises:
      TypeError: The environment was given as an object on the host.
    """
    given, preprocessing, _, seed = self._made_from
    source = wrapping.recognize(given, preprocessing)
    if source.num_environments is not None:
      raise TypeError(
        f'This trainer cannot be copied, because {given!r} is a single object: '
        'make the trainer with a function that makes the environment.'
      )
    train_state = jax.tree.map(jnp.copy, self._get_train_state())
    new = object.__new__(type(self))
    new._names, new.config, new.spec = self._names, self.config, self.spec
    new._environment = source.build(self.config.num_environments, seed)
    new._initialize(*self._made_from)
    new._train_state = new._driver.from_file(
      train_state, self._driver.replay_contents()
    )
    new.updates, new._steps = self.updates, self._steps
    new._memory = dataclasses.replace(self._memory)
    if self._is_closed:
      new.close()
    return new

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def __repr__(self) -> str:
    closed = ', closed' if self._is_closed else ''
    return f'<Trainer: {self._names}, {self.updates} updates{closed}>'

  def _current_params(self) -> types.Params:
    return self._get_train_state().agents.learner.params

  def _get_train_state(self) -> training.TrainState:
    # Programs reuse the buffers of the state, even if they are interrupted.
    if any(
      x.is_deleted() for x in jax.tree.leaves(self._train_state.agents.learner)
    ):
      raise RuntimeError(
        'The agent was lost when a program was interrupted: make a new '
        'Trainer, or load what was saved last.'
      )
    return self._train_state

  def _describe(self) -> agent_files.Description:
    return dataclasses.replace(self._description, environment_steps=self._steps)

  def _saved(self) -> dict[str, types.PyTree]:
    return {
      agent_files.STATE: self._train_state,
      'replay': self._driver.replay_contents(),
      'updates': jnp.asarray(self.updates),
    }


def _working_directory() -> str | None:
  """Returns the working directory; None if it has been deleted."""
  try:
    return os.getcwd()
  except FileNotFoundError:
    return None


def _resolve(chosen: int | None, own: int | None) -> int | None:
  """Returns the given number of environments, or the environment's own."""
  if None not in (chosen, own) and chosen != own:
    raise ValueError(
      f'num_environments={chosen}, but the environment has {own}: leave '
      'num_environments out.'
    )
  return own or chosen
