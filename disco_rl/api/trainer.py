"""Trains one or several agents, acts with them, saves and loads them."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import inspect
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
from disco_rl.api import policy as policy_lib
from disco_rl.api import rule_checks
from disco_rl.api import rules
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.networks import torsos
from disco_rl.runtime import backend
from disco_rl.runtime import compilation_cache
from disco_rl.runtime import files
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.runtime import metrics
from disco_rl.runtime import npz
from disco_rl.runtime import reports
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs
from disco_rl.training import evaluator as evaluator_lib
from disco_rl.training import loop
from disco_rl.training import parallel
from disco_rl.training import player as player_lib
from disco_rl.update_rules import base as rule_base
from disco_rl.update_rules import registry as rule_registry


class Trainer(policy_lib.Acting):
  """One agent that learns by a rule, in a named environment or your own.

  With `seeds`, there are several, which differ only in their seeds: they learn
  in parallel, and play and act through their policies.

  With environments on the host, use it as a context manager, or call `close`.

  Attributes:
    spec: The shapes of observations and actions, as the agent sees them.
    config: The settings of the agent, including defaults.
    updates: The number of updates so far, of each agent.
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
    seeds: int | None = None,
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
      seed: The seed of all random numbers; that of the first of several
        agents, from which the others count up.
      seeds: The number of agents; None: one, whose metrics have no axis of
        agents. An agent does not depend on the number.
      num_environments: The number of parallel environments of an agent; None:
        that of `environment` if it is an object on the host, otherwise a number
        that suits the rule and batch_size.
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
    if seeds is not None:
      seeds = config_lib.valid('seeds', seeds, config_lib.Count)
    preprocessing = config_lib.plain(preprocessing)
    config_lib.check('sizes', sizes, resolution.Sizes)
    # Replay on disk needs the folder of a run.
    known = {*config_lib.names(agent_lib.AgentConfig)} - {'replay_on_disk'}
    _check_names(settings, known, rule)
    self._names = ' '.join(map(agent_files.name_of, (environment, rule)))
    loaded = rules.load_rule(rule)
    if isinstance(environment, str):
      registry.import_module(environment)
    source = wrapping.recognize(environment, preprocessing)
    if source.num_environments is not None and (seeds or 1) > 1:
      raise ValueError(
        f'seeds={seeds} agents need environments of their own, but '
        f'{environment!r} is a single object: pass a function that makes it, '
        'or a name.'
      )
    number = _resolve(num_environments, source.num_environments)
    folder = _working_directory()
    loaded, self.config, self._environment = resolution.resolve_and_make(
      loaded,
      {**settings, 'torso': torso, 'num_environments': number},
      lambda number: source.build(number * (seeds or 1), seed),
      sizes,
    )
    if (now := _working_directory()) != folder:
      reports.warn(
        f'making the environment changed the working directory from {folder} '
        f'to {now}: relative paths, as of `save`, refer to that folder '
        'from now on.'
      )
    self.spec = self._environment.spec
    self._initialize(environment, preprocessing, loaded, seed, seeds)

  def _initialize(
    self,
    given: object,
    preprocessing: registry.Preprocessing,
    rule: rules.LoadedRule,
    seed: int,
    seeds: int | None,
  ) -> None:
    """Initializes the agents, their training and their player."""
    self._made_from = given, preprocessing, rule, seed, seeds
    self._seeds = range(seed, seed + (seeds or 1))
    self._has_axis = seeds is not None
    self._best: evaluator_lib.Best | None = None
    compilation_cache.use_default_folder()
    self.updates = self._steps = 0
    rule_checks.check_rule(rule.rule, rule.params, self.spec)
    agent = agent_lib.make(self.config, self.spec, rule.rule)
    # Errors about shapes are raised before anything is compiled.
    jax.eval_shape(agent.init_learner, jax.random.key(0))
    self._description = dataclasses.replace(
      agent_files.describe(
        given, preprocessing, rule, seed, self.config, self.spec
      ),
      seeds=len(self._seeds),
    )
    self._rule_params = jax.device_put(rule.params)
    self._training = parallel.make(agent, self._environment, len(self._seeds))
    self._player = player_lib.Player(
      agent.network, self._environment, given, preprocessing
    )
    self._memory = player_lib.Memory(player_lib.action_keys(seed)[0])
    keys = jax.vmap(jax.random.key)(np.asarray(self._seeds))
    self._train_state = self._training.init(keys)
    self._is_closed = self._is_training = False

  def train(
    self,
    updates: int | None = None,
    log_every: int = 10,
    *,
    steps: int | None = None,
    evaluate_every: int = 0,
    evaluate_episodes: int = 10,
    workdir: files.PathLike | None = None,
    loggers: str | Sequence[str] = (),
    save_to: files.PathLike | None = None,
    save_every: int = 100,
    callback: Callable[[loop.Row], None] | None = None,
    show_progress: bool = True,
  ) -> dict[str, np.ndarray]:
    """Trains the agent, by rollouts in all environments and updates.

      trainer.train(steps=100_000)

    If an environment raises, or after an interrupt from the keyboard, the agent
    has the state of the last complete update: it can be saved, and trained
    further in new episodes. JAX-native environments make updates for about a
    second at a time; if one raises within its compiled program, the agent is
    lost.

    Args:
      updates: The number of further updates, instead of `steps`; like log_every
        and save_every rounded up to a multiple of `updates_per_rollout`.
      log_every: The number of updates between two entries of the metrics. Host
        environments step while the device learns, except in the first rollout
        of each entry.
      steps: The number of further environment steps of each agent, rounded up
        to whole rollouts. A line on the standard error stream says so.
      evaluate_every: The number of environment steps between two evaluations,
        in which the agent plays new episodes like `evaluate` with its seed,
        without learning; 0: none. `best_policy` has the best.
      evaluate_episodes: The number of episodes of an evaluation.
      workdir: A folder for metrics.csv, TensorBoard's files, and those of
        loggers; None: none. Training that goes on continues them, a new trainer
        begins them anew.
      loggers: 'wandb' or your own, see `runtime.loggers`; they need a workdir.
      save_to: The path for `save`; None: nothing is saved.
      save_every: The number of updates between two saves, which overwrite the
        file. The last update, or the last before an error, is also saved.
      callback: Called with a copy of each entry of the metrics, name -> value;
        of several agents, also with their `seed`. It may save the agent, act
        and evaluate, but not train or load it.
      show_progress: Whether to show a bar on the standard error stream.

    Returns:
      Metrics as arrays, with an entry after every `log_every` updates, at every
      save and at the end: `update`, `environment_steps`, `episodes` (finished
      so far), `return` (mean of the last 100 episodes, NaN before the first
      ends), `evaluation_return` (mean of an evaluation, NaN without one) and
      metrics of the rule, means over these updates. They are arrays [points];
      with `seeds` [seeds, points], except the first two.

    Raises:
      ValueError: An argument is not valid.
      ImportError: The package of a logger is not installed.
      RuntimeError: The trainer is closed or training, or its agent was lost.
      OSError: The file cannot be written.
      adapters.HostEnvironmentError: An environment on the host raised.
      metrics.NonFiniteError: A loss is no longer finite.
      KeyboardInterrupt: The user interrupted; raised after the current update.
    """
    updates, log_every, save_every = self._check_training(
      updates, steps, log_every, save_to, save_every
    )
    evaluator = self._make_evaluator(evaluate_every, evaluate_episodes)
    names = loggers_lib.valid(loggers)
    # Environments may change the working directory.
    save_to = None if save_to is None else files.expanded(save_to)
    rows: list[list[loop.Row]] = []

    def on_stage(stage: loop.Stage) -> None:
      since, self.updates = self.updates, stage.update
      self._steps = stage.environment_steps
      self._train_state = stage.train_state
      causes = functools.partial(loop.likely_causes, stage.train_state)
      with_seeds = self._with_seeds(stage.rows)
      shown = with_seeds if self._has_axis else stage.rows
      series = 'seed' if self._has_axis else ''
      metrics.check_finite(shown, since, causes, series)
      if evaluator:
        self._best = evaluator.best
      if stage.rows:
        rows.append(stage.rows)
        if writer is not None:
          writer.write(with_seeds)
      if save_to and (stage.is_last or stage.update % save_every == 0):
        self.save(save_to)
      if callback is not None:
        for row in shown:
          callback(dict(row))

    every = (log_every, save_every) if save_to else (log_every,)
    train_state = self._get_train_state()
    self._is_training = True
    try:
      with (
        self._writer(workdir, names) as writer,
        signals.StopSignals(ends_program=False) as requests,
      ):
        requests.install()
        loop.train(
          self._training,
          self._rule_params,
          train_state,
          loop.UpdateRange(
            self.updates, self.updates + updates, every, self._steps
          ),
          on_stage,
          lambda: requests.received is not None,
          self._names,
          show_progress,
          evaluator,
        )
    finally:
      self._is_training = False
    return self._arrays(rows)

  def _arrays(
    self, rows: Sequence[Sequence[loop.Row]]
  ) -> dict[str, np.ndarray]:
    """Returns rows [points][S] as arrays by name; see `train`."""
    arrays = {
      name: np.array([[row[name] for row in point] for point in rows]).T
      for name in rows[0][0]
    }
    common = ('update', 'environment_steps')
    return {
      name: x if self._has_axis and name not in common else x[0]
      for name, x in arrays.items()
    }

  def _with_seeds(self, rows: Sequence[loop.Row]) -> list[loop.Row]:
    """Adds the seed of each agent to its row, after the update."""
    return [
      {'update': row['update'], 'seed': seed, **row}
      for seed, row in zip(self._seeds, rows)
    ]

  @contextlib.contextmanager
  def _writer(
    self, workdir: files.PathLike | None, loggers: Sequence[str]
  ) -> Iterator[metrics.MetricsWriter | None]:
    """Opens the metrics in a folder, if one is given, and the loggers."""
    if workdir is None:
      if loggers:
        raise ValueError(
          f'loggers={",".join(loggers)} need a folder for their files: '
          "workdir='runs/NAME'."
        )
      yield None
      return
    workdir = files.expanded(workdir)
    if (workdir / 'config.json').exists():
      raise ValueError(
        f'{workdir} holds a run of a command, whose metrics would be lost: '
        'name another workdir.'
      )
    described = dataclasses.asdict(self._description)
    settings = {**described.pop('settings'), **described}
    run = loggers_lib.Run(workdir, settings, 'update')
    with contextlib.ExitStack() as stack:
      stack.enter_context(workdirs.locked(workdir))
      if not self.updates:
        (workdir / 'loggers.json').unlink(missing_ok=True)
      opened = stack.enter_context(loggers_lib.opened(loggers, run))
      yield stack.enter_context(
        metrics.MetricsWriter(workdir, self.updates or None, loggers=opened)
      )

  def _make_evaluator(
    self, every: int, episodes: int
  ) -> evaluator_lib.Evaluator | None:
    """Makes the evaluator of a training; None without evaluations."""
    every = config_lib.valid('evaluate_every', every, config_lib.CountOrZero)
    episodes = config_lib.valid('evaluate_episodes', episodes, config_lib.Count)
    if not every:
      return None
    params = self._get_train_state().learner.params
    best = self._best or evaluator_lib.no_best(params)
    return evaluator_lib.Evaluator(
      self._player, self._seeds, every, episodes, best
    )

  def _check_training(
    self,
    updates: int | None,
    steps: int | None,
    log_every: int,
    save_to: files.PathLike | None,
    save_every: int,
  ) -> tuple[int, int, int]:
    """Raises the errors of `train` that are known in advance.

    Returns:
      The numbers of updates, rounded.
    """
    if self._is_closed:
      raise RuntimeError('The trainer is closed: make a new one to train.')
    self._check_idle()
    backend.check_settings()
    if (updates is None) == (steps is None):
      raise ValueError(
        'Say once how long to train: steps=100_000 environment steps, or '
        'updates=300.'
      )
    whole = self.config.whole
    if updates is not None:
      asked = config_lib.valid('updates', updates, config_lib.Count)
      updates = whole(asked)
      loop.report_rounding('updates', asked, updates)
    else:
      asked = config_lib.valid('steps', steps, config_lib.Count)
      agent = self._training.agent
      fill = self._training.fill_rollouts(self._get_train_state())
      updates = agent.updates_for(asked, fill)
      made = (updates + agent.config.updates(fill)) * agent.steps_per_update
      loop.report_rounding('environment steps', asked, made)
    log_every = config_lib.valid('log_every', log_every, config_lib.Count)
    save_every = config_lib.valid('save_every', save_every, config_lib.Count)
    if save_to is not None:
      npz.check_name(save_to)
      files.check_writable(save_to)
    return updates, whole(log_every), whole(save_every)

  def _check_idle(self) -> None:
    """Raises RuntimeError during `train`, whose state would be replaced."""
    if self._is_training:
      raise RuntimeError(
        'The trainer is training: train or load its agent after `train` has '
        'returned, not in the callback or in another thread; or make a second '
        'Trainer.'
      )

  def policy(self, seed: int | None = None) -> policy_lib.Policy:
    """Returns the current policy, without the state for learning.

    Args:
      seed: The seed of the agent; None if there is only one.

    Raises:
      ValueError: There is no such agent, or there are several.
    """
    return self._policy(
      self._get_train_state().learner.params,
      self._index(seed),
      self._steps,
    )

  def best_policy(self, seed: int | None = None) -> policy_lib.Policy:
    """Returns the policy with the best evaluation during training.

    `save` does not keep it: save the policy. Its description names the
    environment steps after which it was reached.

    Args:
      seed: The seed of the agent; None: the best of all.

    Raises:
      ValueError: There is no such agent.
      RuntimeError: No agent was evaluated; see `evaluate_every` of `train`.
    """
    best = self._best
    if best is None or not np.isfinite(best.mean_return).any():
      raise RuntimeError(
        'No agent was evaluated during training: train with '
        'evaluate_every=STEPS.'
      )
    index = self._index(seed, default=int(np.argmax(best.mean_return)))
    return self._policy(best.params, index, int(best.environment_steps[index]))

  def _policy(
    self, params: types.Params, index: int, environment_steps: int
  ) -> policy_lib.Policy:
    """Returns the policy of one agent, with its own copy of parameters."""
    description = dataclasses.replace(
      self._describe(),
      seed=self._seeds[index],
      seeds=1,
      environment_steps=environment_steps,
    )
    one = jax.tree.map(lambda x: jnp.asarray(x[index : index + 1]), params)
    return policy_lib.Policy(
      description, host_collector.copy_params(one), self._player
    )

  def _index(self, seed: int | None, default: int | None = None) -> int:
    """Returns the index of the agent with a seed."""
    if seed is None and default is not None:
      return default
    if seed is None and len(self._seeds) == 1:
      return 0
    if seed is None or seed not in self._seeds:
      named = 'name one' if seed is None else f'no agent has the seed {seed}'
      raise ValueError(
        f'The trainer has agents with the seeds {self._seeds[0]} to '
        f'{self._seeds[-1]}: {named}, as in '
        f'trainer.policy({self._seeds[0]}).evaluate().'
      )
    return self._seeds.index(seed)

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
    self._resume(saved[agent_files.STATE], saved['replay'])
    self.updates = int(saved['updates'])
    steps = found.environment_steps
    if steps is None:  # Saved by disco_rl 0.2.
      steps = self._training.agent.environment_steps(self.updates)
    self._steps = steps
    self._memory.reset_core()
    self._best = None

  def take_over(
    self,
    train_state: agent_lib.AgentState,
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
    self._train_state = self._training.cohort.resume(train_state)
    self.updates, self._steps = updates, environment_steps
    self._memory.reset_core()

  def close(self) -> None:
    """Closes host environments; the agent cannot be trained afterwards."""
    if self._is_closed:
      return
    self._is_closed = True
    self._environment.close()

  def __copy__(self) -> Self:
    """Copies the agent and the state of training.

    Environments on the host are made anew, and begin new episodes in the copy,
    whose programs are compiled again.

    Raises:
      TypeError: The environment was given as an object on the host.
    """
    given, preprocessing, _, seed, _ = self._made_from
    source = wrapping.recognize(given, preprocessing)
    if source.num_environments is not None:
      raise TypeError(
        f'This trainer cannot be copied, because {given!r} is a single object: '
        'make the trainer with a function that makes the environment.'
      )
    train_state = jax.tree.map(jnp.copy, self._get_train_state())
    new = object.__new__(type(self))
    new._names, new.config, new.spec = self._names, self.config, self.spec
    number = self.config.num_environments * len(self._seeds)
    new._environment = source.build(number, seed)
    new._initialize(*self._made_from)
    new._resume(train_state, self._training.cohort.contents())
    new.updates, new._steps = self.updates, self._steps
    new._memory = dataclasses.replace(self._memory)
    new._best = self._best
    if self._is_closed:
      new.close()
    return new

  def __enter__(self) -> Self:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def __repr__(self) -> str:
    closed = ', closed' if self._is_closed else ''
    agents = f', {len(self._seeds)} agents' * self._has_axis
    return f'<Trainer: {self._names}{agents}, {self._steps} steps{closed}>'

  def _current_params(self) -> types.Params:
    self._index(None)  # One agent acts.
    return self._get_train_state().learner.params

  def _get_train_state(self) -> agent_lib.AgentState:
    # Programs reuse the buffers of the state, even if they are interrupted.
    if any(x.is_deleted() for x in jax.tree.leaves(self._train_state.learner)):
      raise RuntimeError(
        'The agent was lost when a program was interrupted: make a new '
        'Trainer, or load what was saved last.'
      )
    return self._train_state

  def _resume(
    self, train_state: agent_lib.AgentState, replay: types.PyTree
  ) -> None:
    """Continues with a state, and the `Cohort.contents` of its agents."""
    cohort = self._training.cohort
    cohort.replace_contents(replay, train_state.replay)
    self._train_state = cohort.resume(train_state)

  def _describe(self) -> agent_files.Description:
    return dataclasses.replace(self._description, environment_steps=self._steps)

  def _saved(self) -> dict[str, types.PyTree]:
    return {
      agent_files.STATE: self._train_state,
      'replay': self._training.cohort.contents(),
      'updates': jnp.asarray(self.updates),
    }


# Names in other libraries -> the setting of agents or of rules.
_ELSEWHERE = {
  **dict.fromkeys(('lr', 'step_size'), 'learning_rate'),
  **dict.fromkeys(('n_envs', 'num_envs'), 'num_environments'),
  **dict.fromkeys(('n_steps', 'num_steps', 'rollout_length'), 'unroll_length'),
  **dict.fromkeys(('gamma', 'discount_factor'), 'discount'),
  **dict.fromkeys(('gae_lambda', 'td_lambda'), 'lambda_'),
  **dict.fromkeys(('ent_coef', 'entropy_coef'), 'entropy_cost'),
  **dict.fromkeys(('max_grad_norm', 'clip_grad_norm'), 'max_gradient_norm'),
  **dict.fromkeys(('buffer_size', 'replay_size'), 'replay_capacity'),
  **dict.fromkeys(('n_epochs', 'update_epochs'), 'updates_per_rollout'),
  **dict.fromkeys(('num_seeds', 'n_seeds'), 'seeds'),
}


def _check_names(
  given: Collection[str], known: Collection[str], rule: object
) -> None:
  """Raises ValueError for a name that is no setting of agents.

  Args:
    given: The names.
    known: The names of settings of agents.
    rule: The name of the rule, for which it is not loaded, or another argument
      of `load_rule`.
  """
  for name in given:
    here = _ELSEWHERE.get(name, name)
    if here in rule_registry.setting_names() and here not in known:
      own = rule if isinstance(rule, str) else 'NAME'
      remedy = f'rule=disco_rl.load_rule({own!r}, {here}=...)'
      if own == rule and here not in rule_registry.setting_names_of(own):
        remedy = f'{own!r} does not have it'
      raise ValueError(f'{name} is a setting of rules, {here}: {remedy}.')
    if here != name:
      raise ValueError(f'Trainer has no setting {name!r}: it is called {here}.')
    if (
      name not in known and name in inspect.signature(Trainer.train).parameters
    ):
      raise ValueError(
        f'{name} is an argument of train, not of Trainer: '
        f'trainer.train({name}=...).'
      )
  config_lib.check_names(given, known, 'Trainer')


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
