"""Trains agents with a fixed rule, several seeds at once: disco-rl train.

`config` has its settings.
"""

from collections.abc import Mapping
import functools
import pathlib

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.environments import base as environment_base
from disco_rl.environments import registry as environment_registry
from disco_rl.environments.host import adapters
from disco_rl.maths import statistics
from disco_rl.planning import fitting
from disco_rl.runtime import backend
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.runtime import run as run_lib
from disco_rl.training import achievements
from disco_rl.training import base
from disco_rl.training import config as training_config
from disco_rl.training import evaluator as evaluator_lib
from disco_rl.training import footprint
from disco_rl.training import loop
from disco_rl.training import parallel
from disco_rl.training import player as player_lib
from disco_rl.update_rules import base as rule_base
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources

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
  config: training_config.TrainingConfig,
  update: int,
  saved: Mapping[str, types.PyTree],
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
    config: training_config.TrainingConfig,
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
    self, config: training_config.TrainingConfig, rule: rule_base.UpdateRule
  ) -> tuple[training_config.TrainingConfig, base.Training, fitting.Needs]:
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
      free=training_config.FREE,
      complete=training_config.complete,
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
    """Returns the content of a checkpoint.

    These are the agents and their environment steps; the episodes of
    environments on the host, if they can be saved; and with evaluations the
    best policies. The rule's parameters are not part of it, nor is replay of
    environments on the host.
    """
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
