"""Trains agents with a fixed rule, several seeds at once: disco-rl train."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import itertools
import pathlib

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.agent import resolution
from disco_rl.environments import base as environment_base
from disco_rl.environments import registry as environment_registry
from disco_rl.environments.host import adapters
from disco_rl.maths import statistics
from disco_rl.planning import fitting
from disco_rl.runtime import backend
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.runtime import run as run_lib
from disco_rl.training import achievements
from disco_rl.training import base
from disco_rl.training import evaluator as evaluator_lib
from disco_rl.training import footprint
from disco_rl.training import loop
from disco_rl.training import parallel
from disco_rl.training import player as player_lib
from disco_rl.update_rules import base as rule_base
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources


@dataclasses.dataclass(frozen=True)
class TrainingConfig(config_lib.Settings):
  """Settings of disco-rl train, besides those of agents and rules.

  Attributes:
    environment: name of the environment.
    rule: name of a rule, the path of an npz file, or a hf:// address.
    seeds: number of agents, trained in parallel, which differ only in their
      seeds.
    seed: seed of the first agent, and of all host environments; the others
      count up. An agent does not depend on the number of agents.
    updates: updates of each agent, unless `steps` is given; like `log_every`
      and `checkpoint_every` rounded up to a multiple of its
      `updates_per_rollout`.
    log_every: updates between two rows of metrics.
    evaluate_every: environment steps of each agent between two evaluations, in
      which it plays episodes in new environments, without learning from them;
      0: none. The run keeps the best policy of each agent.
    evaluate_episodes: episodes of each agent in an evaluation.
    checkpoint_every: updates between two checkpoints.
    checkpoint_seconds: maximal seconds between two checkpoints; more if saving
      would take over 2% of the time.
    sizes: 'task' for agents that suit the rule and the task; 'paper' for the
      agents of the paper.
    agent: settings of the agents.
    rule_settings: fields of the rule's class.
    preprocessing: changes to environments, see `environments.registry.make`.
    loggers: loggers in addition to metrics.csv and TensorBoard, separated by
      commas: 'wandb' or your own.
  """

  environment: str = 'catch'
  rule: sources.Name = 'disco103'
  seeds: config_lib.Count = 5
  seed: config_lib.CountOrZero = 0
  updates: config_lib.Count = 1000
  log_every: config_lib.Count = 10
  evaluate_every: config_lib.CountOrZero = 0
  evaluate_episodes: config_lib.Count = 10
  checkpoint_every: config_lib.Count = 1000
  checkpoint_seconds: config_lib.Bound = 60.0
  sizes: resolution.Sizes = 'task'
  agent: agent_lib.AgentConfig = agent_lib.AgentConfig()
  rule_settings: config_lib.ExtraSettings = dataclasses.field(
    default_factory=dict
  )
  preprocessing: environment_registry.Preprocessing = dataclasses.field(
    default_factory=environment_registry.default_preprocessing
  )
  loggers: loggers_lib.Names = ()

  @property
  def environment_steps(self) -> int:
    """The total environment steps of one agent."""
    return self.steps_after(self.updates)

  def steps_after(self, updates: int) -> int:
    """Returns the environment steps of one agent until some updates."""
    return self.agent.environment_steps(updates, self.action_repeat)

  def updates_for(self, environment_steps: int) -> int:
    """Returns the updates until at least some environment steps are made."""
    return self.agent.updates_for(environment_steps, self.action_repeat)

  @property
  def action_repeat(self) -> int:
    """The environment steps per action, before there is an environment."""
    return environment_registry.action_repeat(
      self.environment, self.preprocessing
    )

  def conflicts(self) -> Iterator[str]:
    """Yields an error if the last rollout lacks some of its updates."""
    try:
      self.agent.rollouts(self.updates)
    except ValueError as error:
      yield str(error)


@dataclasses.dataclass(frozen=True)
class Budget(config_lib.Settings):
  """The length of a training in environment steps.

  Attributes:
    steps: environment steps of each agent, rounded up to whole rollouts,
      instead of `updates`, which config.json has; 0: `updates` is given.
  """

  steps: config_lib.CountOrZero = 0


@dataclasses.dataclass(frozen=True)
class StartingPoint(config_lib.Settings):
  """Choices of a starting point for single rules.

  Attributes:
    by_rule: name of a rule -> its settings in this task, and those of its
      agents; others that are given take precedence.
  """

  by_rule: Mapping[str, Mapping[str, object]] = dataclasses.field(
    default_factory=dict
  )

  def conflicts(self) -> Iterator[str]:
    """Yields an error if these are no settings of rules."""
    by_rule: object = self.by_rule
    if not isinstance(by_rule, Mapping) or not all(
      isinstance(own, Mapping) for own in by_rule.values()
    ):
      yield f'by_rule={by_rule!r} must map names of rules to their settings.'


def config_of(
  settings: Mapping[str, object], rollouts: int | None = None
) -> TrainingConfig:
  """Builds the config of a training; see `resolve`."""
  return resolve(settings, rollouts)[0]


def resolve(
  settings: Mapping[str, object], rollouts: int | None = None
) -> tuple[TrainingConfig, rule_registry.LoadedRule]:
  """Builds the config of a training from flat settings, and loads its rule.

  Args:
    settings: The settings by name, and those of `Budget` and `StartingPoint`.
      `agent.resolution` chooses those of agents and rules that are None or
      absent; config.json has all of them.
    rollouts: The number of rollouts, instead of the setting `updates`; then
      `log_every` also counts rollouts.

  Returns:
    The config, and the rule with its settings.

  Raises:
    ValueError: A setting is unknown or not valid.
    OSError: The file of the rule cannot be read or downloaded.
    ImportError: A package of the task, on which settings depend, is missing.
  """
  of_rules = rule_registry.setting_names()
  of_agents = {*config_lib.names(agent_lib.AgentConfig)}
  chosen = {*of_agents, *of_rules, 'sizes'}
  given = _given(settings, chosen)
  steps = config_lib.build(Budget, given).steps
  given.pop('steps', None)
  config = config_lib.build(
    TrainingConfig, given, agent=agent_lib.AgentConfig(), rule_settings={}
  )
  rule_settings = {n: x for n, x in given.items() if n in of_rules}
  rule_registry.check_settings(rule_settings)
  rule, agent = resolution.resolve(
    rule_registry.load_with_card(config.rule, **rule_settings),
    {name: given.get(name) for name in of_agents},
    lambda _: environment_registry.specimen(
      config.environment, config.preprocessing
    )[0],
    config.sizes,
  )
  # Starting points count updates of rules that make one of each rollout.
  updates, log_every = agent.whole(config.updates), config.log_every
  if rollouts is not None:
    updates, log_every = agent.updates(rollouts), agent.updates(log_every)
  elif steps:
    whole = dataclasses.replace(config, agent=agent, updates=updates)
    updates = whole.updates_for(steps)
  config = dataclasses.replace(
    config,
    agent=agent,
    rule_settings=rule_registry.settings_of(rule.rule),
    updates=updates,
    log_every=log_every,
  )
  return config, rule


def _given(
  settings: Mapping[str, object], chosen: Collection[str]
) -> dict[str, object]:
  """Returns the settings that are given, including those for the rule.

  Args:
    settings: The settings of `resolve`.
    chosen: The names of settings that are unset if they are None.

  Raises:
    ValueError: A setting is unknown or not valid.
  """
  records = (TrainingConfig, Budget, StartingPoint)
  known = {*chosen, *itertools.chain(*map(config_lib.names, records))}
  config_lib.check_names(settings, known, 'The config')
  given = {
    name: value
    for name, value in settings.items()
    if value is not None or name not in chosen
  }
  by_rule = config_lib.build(StartingPoint, given).by_rule
  for name, own in by_rule.items():
    config_lib.check_names(own, chosen, f'by_rule.{name}')
  given.pop('by_rule', None)
  rule = f'{given.get("rule", TrainingConfig.rule)}'
  return {**by_rule.get(rule, {}), **given}


# Settings that may change when a run is resumed.
FREE = (
  'updates',
  'log_every',
  'checkpoint_every',
  'checkpoint_seconds',
  'loggers',
)
# Settings that a fork shares with its source: agents keep the state of their
# environments, their random numbers and their replay.
KEPT = (
  'environment',
  'preprocessing',
  'seed',
  'seeds',
  'unroll_length',
  'replay_capacity',
)


def complete(settings: Mapping[str, object]) -> dict[str, object]:
  """Returns all settings of a training, given some; see `config_of`."""
  return config_lib.flatten(config_of(settings))


# The names of the agents in checkpoints, and of the environment steps that each
# of them has made. Version 0.2 did not save these.
TRAIN_STATE = 'train_state'
STEPS = 'environment_steps'
# That of the best policies, an `evaluator.Best`, of runs with evaluations.
BEST = 'best'
_DISK_REMEDY = (
  'Choose a --workdir on a larger disk, or lower seeds or replay_capacity.'
)


def steps_of(
  config: TrainingConfig, update: int, saved: Mapping[str, types.PyTree]
) -> int:
  """Returns the environment steps of each agent of a checkpoint."""
  return int(saved.get(STEPS, config.steps_after(update)))


class TrainingRun:
  """A training of several agents in one folder.

  The constructor reports every error in the settings before anything is
  compiled or written.
  """

  def __init__(
    self,
    config: TrainingConfig,
    rule: rule_registry.LoadedRule | None = None,
  ):
    """Builds the agent, its environments and its rule.

    Args:
      config: The settings of the run.
      rule: The rule that `resolve` returned with them; None: it is loaded.

    Raises:
      ValueError: A setting, name or file is not valid, or memory is too small.
      FileNotFoundError: The file of the rule's weights does not exist.
      ImportError: The environment needs a package that is not installed.
    """
    backend.check_settings()
    self._config = config
    environment_registry.validate(config.environment)
    if rule is None:
      rule = rule_registry.load_with_card(config.rule, **config.rule_settings)
    update_rule = rule.rule
    environment = environment_registry.make(
      config.environment,
      config.seeds * config.agent.num_environments,
      config.seed,
      config.preprocessing,
    )
    self._environment = environment
    self._rule_params = jax.device_put(rule.params)
    fits, self._training, self._needs = fitting.first_that_fits(
      fitting.chunk_size_candidates(config),
      lambda config: self._fit(config, update_rule),
    )
    self._training.cohort.begin_episodes()
    self._evaluator = self._make_evaluator() if config.evaluate_every else None
    self._chosen = fitting.report_choices(
      config.agent.automatic_choices, fits.agent.automatic_choices
    )
    self._achievements = achievements.Counter(environment, config.seeds)

  def _fit(
    self, config: TrainingConfig, rule: rule_base.UpdateRule
  ) -> tuple[TrainingConfig, base.Training, fitting.Needs]:
    """Prepares training with a config; raises if it does not fit."""
    agent = agent_lib.make(config.agent, self._environment.spec, rule)
    jax.eval_shape(lambda: agent.init_learner(jax.random.key(0)))
    training = parallel.make(agent, self._environment, config.seeds)
    needs = footprint.needs(training, self._rule_params)
    needs.check()
    return config, training, needs

  def _make_evaluator(self) -> evaluator_lib.Evaluator:
    config, agent = self._config, self._training.agent
    player = player_lib.Player(
      agent.network, self._environment, config.environment, config.preprocessing
    )
    params = jax.eval_shape(
      jax.vmap(lambda key: agent.init_learner(key).params), self._keys()
    )
    return evaluator_lib.Evaluator(
      player,
      range(config.seed, config.seed + config.seeds),
      config.evaluate_every,
      config.evaluate_episodes,
      evaluator_lib.no_best(params),
    )

  def run(
    self,
    workdir: str | pathlib.Path,
    description: Mapping[str, object] | None = None,
  ) -> dict[str, object]:
    """Trains, resuming from the last checkpoint in the folder.

    Writes config.json, metrics.csv, tensorboard/, checkpoints/, summary.json
    and curves.png.

    Args:
      workdir: The folder of the run.
      description: The settings for config.json, to which those of the config
        and automatic choices are added; for a fork also its origin, see
        `runtime.forks`.

    Returns:
      The summary, as in summary.json: environment, rule, seeds, updates,
      environment_steps, return (see `statistics.summarize`), seconds,
      compile_seconds, peak_memory_bytes, checkpoint_seconds (for which saving
      blocked the run); in Crafter also crafter_score; with evaluations also
      best_evaluation_return; digests (see `digests.write_summary`).

    Raises:
      workdirs.WorkdirError: The folder contains a run with other settings, or
        is in use by another run; nothing is changed.
      metrics.NonFiniteError: A loss is not finite.
      checkpointing.CheckpointError: A checkpoint cannot be written or read.
      signals.Interrupted: A signal ended the run; a checkpoint was saved.
    """
    config = self._config
    description = {**config_lib.flatten(config), **(description or {})}
    options = run_lib.Options(
      step='update',
      series='seed',
      every=config.agent.whole(config.checkpoint_every),
      seconds=config.checkpoint_seconds,
      free=FREE,
      complete=complete,
      rules=sources.files_among([config.rule]),
      loggers=config.loggers,
      disk=self._needs.disk,
      remedy=_DISK_REMEDY,
    )
    settings = {**description, **self._chosen}
    with run_lib.opened(workdir, settings, options) as run:
      self._training.cohort.open_replays(run.replays)
      train_state, steps = self._training.init(self._keys()), 0
      with run.saving():
        newest = run.restore(
          self._content(train_state, steps),
          lambda tree: self._training.cohort.restore_replays(
            tree[TRAIN_STATE].replay
          ),
          # Environments are missing after a failure.
          optional=['environments', STEPS, BEST],
        )
        if newest is not None:
          train_state = self._resume(*newest)
          steps = steps_of(config, *newest)
        train_state, steps = self._train(run, train_state, steps)
      return run.finish(self._summary(run, train_state, steps), self._draw)

  def close(self) -> None:
    """Closes host environments; `run` cannot be called afterwards."""
    self._environment.close()

  def _content(
    self, train_state: agent_lib.AgentState, environment_steps: int
  ) -> dict[str, types.PyTree]:
    """Returns the content of a checkpoint."""
    content: dict[str, types.PyTree] = {
      TRAIN_STATE: train_state,
      STEPS: np.asarray(environment_steps, np.int64),
    }
    environments = self._training.cohort.save_episodes()
    if environments is not None:
      content['environments'] = environments
    if self._evaluator:
      content[BEST] = self._evaluator.best
    return content

  def _resume(
    self, update: int, saved: Mapping[str, types.PyTree]
  ) -> agent_lib.AgentState:
    """Continues from a checkpoint; state that it lacks starts afresh."""
    environments = saved.get('environments')
    if self._evaluator and BEST in saved:
      self._evaluator.best = saved[BEST]
    cohort = self._training.cohort
    if environments is None:
      cohort.replace_environments(functools.partial(self._make_again, update))
    return cohort.resume(saved[TRAIN_STATE], environments)

  def _make_again(self, update: int) -> list[environment_base.HostEnvironment]:
    """Makes environments on the host for what begins after an update."""
    config = self._config
    reports.note(
      f'{config.environment} begins new episodes, with seeds of their own: '
      'the checkpoint holds the whole agents, but no unfinished episodes.'
    )
    environment = environment_registry.make(
      config.environment,
      config.seeds * config.agent.num_environments,
      adapters.seed_after(config.seed, update),
      config.preprocessing,
    )
    assert isinstance(environment, environment_base.HostEnvironment)
    self._environment = environment
    self._achievements = achievements.Counter(environment, config.seeds)
    return [environment]

  def _keys(self) -> types.Array:
    seeds = self._config.seed + np.arange(self._config.seeds)
    return jax.vmap(jax.random.key)(seeds)

  def _train(
    self,
    run: run_lib.Run,
    train_state: agent_lib.AgentState,
    environment_steps: int,
  ) -> tuple[agent_lib.AgentState, int]:
    """Trains to the last update; logs and saves along the way.

    Returns:
      The state, and the environment steps of each agent.
    """
    config, latest, steps = self._config, train_state, environment_steps

    def on_stage(stage: loop.Stage) -> None:
      nonlocal latest, steps
      rows = self._rows(stage)
      causes = functools.partial(loop.likely_causes, stage.train_state)
      metrics.check_finite(rows, run.step, causes, 'seed')
      writer.write(rows)
      latest, run.step = stage.train_state, stage.update
      steps = stage.environment_steps
      if run.is_due(stage.is_last):
        run.save(save)

    def save() -> dict[str, types.PyTree]:
      self._training.cohort.save_replays(run.options.keep)
      return self._content(latest, steps)

    every = map(config.agent.whole, (config.log_every, config.checkpoint_every))
    with run.writer() as writer:
      loop.train(
        self._training,
        self._rule_params,
        train_state,
        loop.UpdateRange(run.step, config.updates, tuple(every), steps),
        on_stage,
        run.should_stop,
        f'{config.environment} {config.rule}',
        evaluator=self._evaluator,
      )
    return latest, steps

  def _rows(self, stage: loop.Stage) -> list[loop.Row]:
    """Returns a row per seed, including the environment's own metrics."""
    success = self._success_rates(stage.train_state)
    unlocked = self._achievements.advance()
    common = ['environment_steps', 'episodes', 'return']
    common += ['evaluation_return'] * bool(self._evaluator)
    return [
      {
        'update': row['update'],
        'seed': self._config.seed + i,
        **{name: row[name] for name in common},
        **({} if success is None else {'success': success[i]}),
        **unlocked[i],
        **row,
      }
      for i, row in enumerate(stage.rows)
    ]

  def _success_rates(
    self, train_state: agent_lib.AgentState
  ) -> list[float] | None:
    """Returns the fraction of recent episodes solved, if it is defined."""
    threshold = environment_registry.success_threshold(self._config.environment)
    if threshold is None:
      return None
    solved = jax.vmap(episodes.fraction_above, in_axes=(0, None))
    return np.asarray(solved(train_state.acting.episodes, threshold)).tolist()

  def _summary(
    self,
    run: run_lib.Run,
    train_state: agent_lib.AgentState,
    environment_steps: int,
  ) -> dict[str, object]:
    """Returns the part of the summary about training."""
    config = self._config
    summary = {
      'environment': config.environment,
      'rule': config.rule,
      'seeds': config.seeds,
      'updates': run.step,
      'environment_steps': environment_steps,
      'return': statistics.summarize(loop.returns(train_state)),
    }
    if self._evaluator:
      best = self._evaluator.best.mean_return
      summary['best_evaluation_return'] = statistics.summarize(best.tolist())
    scores = achievements.crafter_scores(run.folder / 'metrics.csv')
    if scores is not None:
      summary['crafter_score'] = statistics.summarize(scores)
    return summary

  def _draw(self, path: pathlib.Path) -> None:
    """Draws the learning curves of a run next to its metrics."""
    # Imported late: a start should not wait for matplotlib.
    from disco_rl.training import learning_curves

    rows = learning_curves.read_curve(path.with_name('metrics.csv'))
    learning_curves.learning_curves(
      {self._config.rule: rows}, path, title=self._config.environment
    )
