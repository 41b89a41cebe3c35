"""Discovery: runs meta-steps in a folder, with reports and checkpoints."""

from collections.abc import Collection
from collections.abc import Mapping
import pathlib

import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import footprint
from disco_rl.meta_training import held_out as held_out_lib
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import population
from disco_rl.meta_training import reporting
from disco_rl.meta_training import rule_files as rule_files_lib
from disco_rl.meta_training import selection as selection_lib
from disco_rl.planning import fitting
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import forks
from disco_rl.runtime import memory
from disco_rl.runtime import metrics
from disco_rl.runtime import progress
from disco_rl.runtime import reports
from disco_rl.runtime import run as run_lib
from disco_rl.runtime import sharding
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources

# Settings that may change when a run is resumed, possibly on other devices.
FREE = (
  'meta_steps',
  'checkpoint_every',
  'keep_checkpoints',
  'batch_devices',
  'cpu_devices',
  'loggers',
  'held_out_patience',
)
# Settings that a fork shares with its source: agents keep the state of their
# environments and their replay.
KEPT = (
  'environments',
  'preprocessing',
  'agents',
  'group_multiple',
  'unroll_length',
  'replay_capacity',
)
_DISK_REMEDY = (
  'Choose a --workdir on a larger disk, or lower keep_checkpoints, agents or '
  'replay_capacity.'
)
_HELD_OUT = 'held_out'
# The entry of a checkpoint with the best rule so far.
_SELECTION = 'selection'


def config_of(
  settings: Mapping[str, object], flags: Collection[str] = ()
) -> meta_config.MetaTrainingConfig:
  """Builds the config of a discovery from flat settings.

  Settings of the rule that are None or absent are those of its own discovery,
  or the defaults of an untrained rule. The network of a rule from a file is
  that of the file, whatever the settings say.

  Args:
    settings: The settings by name.
    flags: The names of those that the user has given on the command line, which
      are used or refused.

  Raises:
    ValueError: A setting is unknown or not valid.
    OSError: The file of the rule cannot be read or downloaded.
  """
  record = meta_config.MetaTrainingConfig
  config_lib.check_names(settings, config_lib.names(record), 'The config')
  rule_names = {*config_lib.names(disco.Disco, nested=False)}
  given = {
    name: value
    for name, value in settings.items()
    if value is not None or name not in rule_names
  }
  config = config_lib.build(record, given)
  if config.rule == meta_config.UNTRAINED:
    return config
  own = {
    name: vars(config.rule_settings)[name] for name in rule_names & {*given}
  }
  rule, _ = build.load_rule(config.rule, own)
  asked = config_lib.flatten(config.rule_settings.network)
  network = config_lib.flatten(rule.network)
  for name in sorted(network.keys() & {*flags}):
    if asked[name] != network[name]:
      raise ValueError(
        f'{name}={asked[name]!r} is for untrained rules: the network of '
        f'{config.rule} has {name}={network[name]!r}. Leave it out.'
      )
  # Other records share some of them, such as the discount.
  resolved = {**given, **registry.settings_of(rule)}
  return config_lib.build(record, resolved, rule_settings=rule)


def filled(
  settings: Mapping[str, object], config: meta_config.MetaTrainingConfig
) -> dict[str, object]:
  """Returns settings with those of a config in the place of None."""
  known = config_lib.flatten(config)
  return {
    name: known[name] if value is None else value
    for name, value in settings.items()
  }


def complete(settings: Mapping[str, object]) -> dict[str, object]:
  """Returns all settings of a discovery, given some."""
  return config_lib.flatten(config_of(settings))


class MetaTrainer:
  """One run in one folder.

  The constructor checks all settings, before long compilations and before
  anything is written.
  """

  def __init__(self, config: meta_config.MetaTrainingConfig):
    """Makes the rule, the population and the held-out environments.

    Raises:
      ValueError: A setting, name or file is not valid, or memory is too small.
      FileNotFoundError: The file of weights does not exist.
      ImportError: An environment needs a package that is not installed.
    """
    backend.check_settings()
    build.validate((*config.environments, *config.held_out.environments))
    mesh = sharding.make_mesh(config.batch_devices)
    # Groups are known, and checked, only after environments are made; a single
    # one is checked before. With padding, any total can be divided.
    if config.group_multiple == 1 and len(config.environments) == 1:
      sharding.check(config.agents, mesh, 'in all')
    self._rule, params = build.make_rule(config)
    self._initial_params = sharding.to_devices(
      params, mesh, sharding.REPLICATED
    )
    given = config.agent.automatic_choices
    config, self._groups, self._needs = fitting.first_that_fits(
      fitting.chunk_size_candidates(config), self._fit
    )
    for group in self._groups:
      group.cohort.begin_episodes()
    self._config = config
    self._chosen = fitting.report_choices(given, config.agent.automatic_choices)
    self._held_out = held_out_lib.HeldOut(
      config.held_out,
      config.agent,
      self._rule,
      config.seed,
      config.preprocessing,
    )
    self._meta_step = meta_step.MetaStep(config, self._groups, mesh)

  def _fit(
    self, config: meta_config.MetaTrainingConfig
  ) -> tuple[
    meta_config.MetaTrainingConfig, list[population.Group], fitting.Needs
  ]:
    """Makes the population for a config; raises if it does not fit."""
    groups = build.make_groups(config, self._rule)
    footprint.check_replay(groups, memory.host_bytes())
    needs = footprint.needs(
      groups, self._initial_params, config.keep_checkpoints
    )
    needs.check()
    return config, groups, needs

  def run(
    self, workdir: str | pathlib.Path, description: Mapping[str, object]
  ) -> dict[str, object]:
    """Trains, or resumes from the last checkpoint in the folder.

    Writes config.json, initial_rule.npz, metrics.csv, tensorboard/, held_out/,
    checkpoints/, rule.npz, the best rule in held-out environments, and
    newest_rule.npz with their cards (at each checkpoint), summary.json and
    curves.png.

    Args:
      workdir: The folder of the run.
      description: The settings as the user gave them, for config.json, which
        also contains those that were chosen automatically; for a fork also its
        origin, see `runtime.forks`.

    Returns:
      The summary, as in summary.json: rule, agents, meta_steps,
      environment_steps, return (by environment), rule_meta_step (of rule.npz),
      evaluations_since_rule, held_out (by environment, of the new agents of
      rule.npz), seconds, compile_seconds, peak_memory_bytes,
      checkpoint_seconds (for which saving blocked the run, since it was last
      resumed), digests (see `digests.write_summary`). If there are several
      processes, only the first returns it; the others only write their parts of
      the checkpoints.

    Raises:
      workdirs.WorkdirError: The folder contains a run with other settings, or
        another run is using it; nothing is changed.
      metrics.NonFiniteError: An agent's losses are not finite, even after
        resets.
      checkpointing.CheckpointError: A checkpoint cannot be written or read.
      signals.Interrupted: A signal ended the run; a checkpoint was saved.
    """
    config = self._config
    options = run_lib.Options(
      step='meta_step',
      series='environment',
      every=config.checkpoint_every,
      keep=config.keep_checkpoints,
      parts=[_HELD_OUT],
      free=FREE,
      complete=complete,
      rules=sources.files_among([config.rule]),
      loggers=config.loggers,
      disk=self._needs.disk,
      remedy=_DISK_REMEDY,
    )
    description = filled(description, config)
    settings = {**config_lib.flatten(config), **description, **self._chosen}
    with run_lib.opened(workdir, settings, options) as run:
      rule_files = rule_files_lib.RuleFiles(
        run.folder, self._rule, config, self._groups, settings
      )
      rule_files.save_initial(self._initial_params)
      self._meta_step.open_replays(run.replays)
      with run.saving():
        if run.newest_step < config.meta_steps:
          self._compile()
        state = self._meta_step.init(self._initial_params)
        selection = None
        if newest := run.restore(
          self._meta_step.to_tree(state),
          self._meta_step.restore_replays,
          # Runs of several processes do not save environments.
          optional=['environments', 'environment_steps', _SELECTION],
        ):
          state = self._meta_step.restore(*newest)
          # Scores before a fork may be of other environments or agents.
          if run.step != forks.first_step(description):
            selection = selection_lib.from_tree(newest[1].get(_SELECTION))
          rule_files.restore(state, float(newest[1]['seconds']), selection)
        selection = self._train(run, rule_files, state, selection)
      if not distributed.is_first():
        return {}
      return run.finish(self._summary(run, selection), self._draw)

  def _summary(
    self, run: run_lib.Run, selection: selection_lib.Selection | None
  ) -> dict[str, object]:
    """Returns the part of the summary about discovery."""
    chosen = run.step if selection is None else selection.chosen.meta_step
    return {
      'rule': self._config.rule,
      'agents': self._config.agents,
      'rule_meta_step': chosen,
      # By which a sweep knows that held_out_patience has ended the run.
      'evaluations_since_rule': (
        0 if selection is None else selection.evaluations_since
      ),
      **reporting.summary(run.folder, chosen),
    }

  def _draw(self, path: pathlib.Path) -> None:
    """Draws the curves of a run next to its metrics."""
    # Imported late: the start should not wait for matplotlib.
    from disco_rl.meta_training import curves

    curves.meta_training_curves(
      path.parent, path, self._config.held_out.updates
    )

  def _train(
    self,
    run: run_lib.Run,
    rule_files: rule_files_lib.RuleFiles,
    state: meta_step.State,
    selection: selection_lib.Selection | None,
  ) -> selection_lib.Selection | None:
    """Takes the remaining meta-steps; logs, evaluates and saves.

    Returns:
      The final selection; None if there are no held-out environments.
    """
    config = self._config

    def save() -> dict[str, types.PyTree]:
      rule_files.save(state, run.seconds, selection)
      self._meta_step.save_replays()
      content = self._meta_step.to_tree(state)
      tree = selection_lib.to_tree(selection)
      return {**content, **({_SELECTION: tree} if tree else {})}

    with (
      run.writer() as writer,
      run.writer(_HELD_OUT) as held_out_writer,
      progress.Progress(
        config.meta_steps,
        run.step,
        'meta-step',
        'discovery',
        is_shown=distributed.is_first(),
      ) as bar,
    ):
      is_last = run.step >= config.meta_steps or self._is_over(selection)
      if run.step == 0:
        selection = self._evaluate(state, selection, run, held_out_writer, bar)
      while not is_last:
        state, logs, norm = self._meta_step(state)
        run.install_signals()  # Until now there was nothing to save.
        run.step = state.meta_step
        for message in reporting.failures(
          run.step, self._groups, state.lifetimes
        ):
          bar.note(message)
        rows = reporting.rows(
          run.step, self._groups, state.environment_steps, logs, norm
        )
        writer.write(rows)
        bar.advance(1, **reporting.for_progress_bar(rows))
        is_complete = run.step == config.meta_steps
        if is_complete or run.step % config.held_out.every == 0:
          selection = self._evaluate(
            state, selection, run, held_out_writer, bar
          )
          if self._is_over(selection):
            is_complete = True
            bar.note(
              f'discovery ends, since {config.held_out.patience} evaluations '
              'did not improve on the best; a larger held_out_patience goes on'
            )
        is_last = run.should_stop() or is_complete
        if run.is_due(is_last):
          run.save(save)
    return selection

  def _is_over(self, selection: selection_lib.Selection | None) -> bool:
    """Returns whether discovery ends because held-out agents do not improve.

    All processes get the same answer.
    """
    patience = self._config.held_out.patience
    if not patience or selection is None:
      return False
    return bool(distributed.largest(selection.evaluations_since >= patience))

  def _compile(self) -> None:
    """Compiles the programs of all groups and evaluations in parallel."""
    groups = ', '.join(
      f'{group.config.num_counted} agents like {group.config.names[0]}'
      for group in self._groups
    )
    if distributed.is_first():
      reports.note(f'compiling: a program for each group of agents, {groups}')
    params = self._initial_params
    calls = self._meta_step.calls(params)
    calls += self._held_out.calls(distributed.fetch(params))
    compilation.compile_all(calls)

  def _evaluate(
    self,
    state: meta_step.State,
    selection: selection_lib.Selection | None,
    run: run_lib.Run,
    writer: metrics.MetricsWriter,
    bar: progress.Progress,
  ) -> selection_lib.Selection | None:
    """Evaluates the rule on held-out environments; returns the selection."""
    if not self._config.held_out.environments:
      return None
    # Every process evaluates independently, so no communication is needed.
    params = state.rule
    returns = self._held_out.evaluate(
      distributed.fetch(params) if distributed.is_distributed() else params
    )
    writer.write(held_out_lib.rows(state.meta_step, returns))
    shown = ', '.join(f'{k} {np.mean(v):.3g}' for k, v in returns.items())
    bar.note(f'new agents after {state.meta_step} meta-steps: {shown}')
    return selection_lib.add(
      selection,
      distributed.fetch(params),
      returns,
      state.meta_step,
      reporting.total_steps(self._groups, state.environment_steps),
      run.seconds,
    )
