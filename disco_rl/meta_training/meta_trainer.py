"""Discovery: a run of meta-steps in a folder, with reports and checkpoints."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import time
from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import footprint
from disco_rl.meta_training import held_out as held_out_lib
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import population
from disco_rl.meta_training import reporting
from disco_rl.meta_training import rule_files as rule_files_lib
from disco_rl.runtime import backend
from disco_rl.runtime import checkpointing
from disco_rl.runtime import compilation
from disco_rl.runtime import compile_times
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import limits
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.runtime import memory
from disco_rl.runtime import metrics
from disco_rl.runtime import progress
from disco_rl.runtime import reports
from disco_rl.runtime import sharding
from disco_rl.runtime import signals
from disco_rl.runtime import summaries
from disco_rl.runtime import workdirs
from disco_rl.update_rules import sources

# Settings that may change when a run is resumed, also on other devices.
FREE = (
  'meta_steps',
  'checkpoint_every',
  'keep_checkpoints',
  'batch_devices',
  'cpu_devices',
  'loggers',
)
_DISK_REMEDY = (
  'Choose a --workdir on a larger disk, or lower keep_checkpoints, agents or '
  'replay_capacity.'
)
_COLUMNS = ('meta_step', 'environment')


class MetaTrainer:
  """One run in one folder.

  All settings are checked when this is constructed, before anything is compiled
  for long, or written.
  """

  def __init__(self, config: config_lib.MetaTrainingConfig):
    """Makes the rule, the population and the held-out environments.

    Args:
      config: of the run.

    Raises:
      ValueError: a setting, name or file is not valid, or memory is too small.
      FileNotFoundError: there is no file of weights at the path.
      ImportError: an environment needs a package that is not installed.
    """
    backend.check_precision()
    build.validate((*config.environments, *config.held_out.environments))
    mesh = sharding.make_mesh(config.batch_devices)
    # Groups are known, and checked, only when environments have been made. With
    # spares each of them divides, whatever their total without spares.
    if config.group_multiple == 1:
      sharding.check(config.agents, mesh, 'in all')
    self._rule, params = build.make_rule(config)
    self._initial_params = sharding.put(params, mesh, sharding.REPLICATED)
    given = config
    config, self._groups, self._needed = limits.fitting(
      config.agent, lambda agent: self._fit(given, agent)
    )
    for group in self._groups:
      group.begin_episodes()
    self._config = config
    self._chosen = limits.chosen(given.agent, config.agent)
    self._held_out = held_out_lib.HeldOut(
      config.held_out,
      config.agent,
      self._rule,
      config.seed,
      config.preprocessing,
    )
    self._meta_step = meta_step.MetaStep(config, self._groups, mesh)

  def _fit(
    self,
    config: config_lib.MetaTrainingConfig,
    agent: agent_lib.AgentConfig,
  ) -> tuple[
    config_lib.MetaTrainingConfig, list[population.Group], limits.OffDevice
  ]:
    """The population with such agents; raises if it does not fit."""
    config = dataclasses.replace(config, agent=agent)
    groups = build.make_groups(config, self._rule)
    needed = footprint.check(
      groups, self._initial_params, config.keep_checkpoints
    )
    return config, groups, needed

  def run(
    self, workdir: str | pathlib.Path, description: Mapping[str, Any]
  ) -> dict[str, Any]:
    """Trains, or resumes from the last checkpoint in the folder.

    Writes config.json, initial_rule.npz, metrics.csv, tensorboard/, held_out/,
    checkpoints/, rule.npz and its card rule.json (at each checkpoint),
    summary.json and curves.png.

    Args:
      workdir: the folder of the run.
      description: the settings as the user gave them, for config.json, which
        holds those that were chosen automatically as they were chosen; of a
        fork also where it begins, see `runtime.forks`.

    Returns:
      The summary, as in summary.json: meta_steps, agents, environment_steps,
      return (by environment), held_out (by environment, of new agents),
      seconds, compile_seconds, peak_memory_bytes, checkpoint_seconds (that the
      run waited for saving, since the last resumption), digests (see
      `summaries.write`). Of many processes only the first returns it, and
      writes anything but its part of the checkpoints.

    Raises:
      workdirs.WorkdirError: the folder holds a run with other settings, or
        another run is using it; it stays unchanged.
      metrics.NonFiniteError: an agent's losses are not finite, even after
        resets.
      checkpointing.CheckpointError: one cannot be written, or none be read.
      signals.Interrupted: a signal ended the run after a checkpoint.
    """
    workdir = files.expanded(workdir)
    with distributed.folder(workdir) as own, workdirs.locked(own):
      rules = sources.files_among([self._config.rule])
      limits.check_disk(own, self._needed.disk, _DISK_REMEDY)
      settings = {**description, **self._chosen}
      workdirs.claim(own, settings, FREE, rules)
      forks.begin(own, description.get(forks.KEY))
      distributed.wait('the folder is claimed')
      names = self._config.loggers if distributed.is_first() else ()
      logged = loggers_lib.Run(own, description, step='meta_step')
      with loggers_lib.opened(names, logged) as loggers:
        return self._run(own, settings, workdir / 'checkpoints', loggers)

  def _run(
    self,
    workdir: pathlib.Path,
    settings: Mapping[str, Any],
    checkpoints: pathlib.Path,
    loggers: Sequence[metrics.Logger],
  ) -> dict[str, Any]:
    """See `run`; `workdir` is this process's own folder."""
    start = time.perf_counter()
    rule_files = rule_files_lib.RuleFiles(
      workdir, self._rule, self._config, self._groups, settings
    )
    rule_files.save_initial(self._initial_params)
    self._meta_step.open_replays(workdir / 'replay')
    state = self._meta_step.init(self._initial_params)
    own = [workdir / 'metrics.csv', workdir / 'held_out' / 'metrics.csv']
    with (
      # Outermost: a second signal must not end the writing of a checkpoint.
      signals.Requests() as requests,
      checkpointing.Checkpointer(
        checkpoints,
        self._config.keep_checkpoints,
        logs=own if distributed.is_first() else (),
      ) as checkpointer,
    ):
      if newest := checkpointer.restore(
        self._meta_step.to_tree(state, 0.0), self._meta_step.restore_replays
      ):
        state = self._meta_step.restore(*newest)
        start -= float(newest[1]['seconds'])
        rule_files.restore(state, float(newest[1]['seconds']))
      self._train(rule_files, state, checkpointer, requests, start, loggers)
    if not distributed.is_first():
      return {}
    compile_seconds = (
      self._meta_step.compile_seconds + self._held_out.compile_seconds
    )
    summary = {
      'rule': self._config.rule,
      'agents': self._config.agents,
      **reporting.summary(workdir),
      'seconds': time.perf_counter() - start,
      'compile_seconds': compile_seconds,
      'peak_memory_bytes': memory.peak_bytes(),
      'checkpoint_seconds': checkpointer.seconds,
    }
    summary = summaries.write(workdir, summary)
    with reports.surviving('curves.png'):
      # Imported late: a start should not wait for matplotlib.
      from disco_rl.meta_training import curves

      curves.meta_training_curves(
        workdir, workdir / 'curves.png', self._config.held_out.updates
      )
    return summary

  def _train(
    self,
    rule_files: rule_files_lib.RuleFiles,
    state: meta_step.State,
    checkpointer: checkpointing.Checkpointer,
    requests: signals.Requests,
    start: float,
    loggers: Sequence[metrics.Logger],
  ) -> None:
    """Takes the remaining meta-steps; logs, evaluates and saves."""
    config, workdir = self._config, rule_files.workdir
    with (
      metrics.MetricsWriter(
        workdir, state.meta_step, *_COLUMNS, loggers
      ) as writer,
      metrics.MetricsWriter(
        workdir / 'held_out', state.meta_step, *_COLUMNS, loggers, 'held_out/'
      ) as held_out_writer,
      progress.Progress(
        config.meta_steps,
        state.meta_step,
        'meta-step',
        'discovery',
        is_shown=distributed.is_first(),
      ) as bar,
    ):
      if state.meta_step < config.meta_steps:
        self._compile(state.rule_params, bar)
      if state.meta_step == 0:
        self._evaluate(state, held_out_writer, bar)
      while state.meta_step < config.meta_steps:
        state, logs, norm = self._meta_step(state)
        requests.listen()  # Until here nothing could be saved.
        for message in reporting.failures(
          state.meta_step, self._groups, state.lifetimes
        ):
          bar.note(message)
        rows = reporting.rows(state.meta_step, self._groups, logs, norm)
        writer.write(rows)
        bar.advance(1, **reporting.for_progress_bar(rows))
        if self._is_due(state, config.held_out.every):
          self._evaluate(state, held_out_writer, bar)
        # All processes end with the same meta-step.
        signal = distributed.largest(requests.received or 0)
        if self._is_due(state, config.checkpoint_every) or signal:
          seconds = time.perf_counter() - start
          rule_files.save(state, seconds)
          self._meta_step.save_replays()
          checkpointer.save(
            state.meta_step, self._meta_step.to_tree(state, seconds)
          )
        if signal:
          raise signals.Interrupted(signal)

  def _compile(self, rule_params: types.Params, bar: progress.Progress) -> None:
    """Compiles the programs of all groups and evaluations in parallel."""
    groups = ', '.join(
      f'{group.config.num_agents} agents like {group.config.names[0]}'
      for group in self._groups
    )
    key = f'{groups} {dataclasses.replace(self._config, seed=0)}'
    bar.note(
      f'{compile_times.status(key)}: a program for each group of agents, '
      f'{groups}'
    )
    calls = self._meta_step.calls(rule_params)
    calls += self._held_out.calls(distributed.fetch(rule_params))
    with compile_times.kept(key):
      compilation.compile_all(calls)
    bar.begin()

  def _is_due(self, state: meta_step.State, every: int) -> bool:
    step = state.meta_step
    return step % every == 0 or step == self._config.meta_steps

  def _evaluate(
    self,
    state: meta_step.State,
    writer: metrics.MetricsWriter,
    bar: progress.Progress,
  ) -> None:
    """Evaluates the rule on held-out environments."""
    # Each process evaluates for itself: this takes no communication.
    params = state.rule
    returns = self._held_out.evaluate(
      distributed.fetch(params) if distributed.is_distributed() else params
    )
    writer.write(held_out_lib.rows(state.meta_step, returns))
    shown = ', '.join(f'{k} {np.mean(v):.3g}' for k, v in returns.items())
    if shown:
      bar.note(f'new agents after {state.meta_step} meta-steps: {shown}')
