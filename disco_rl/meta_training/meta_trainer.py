"""Discovery: the population lives and votes, and the rule changes."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import time
from typing import Any

import jax
import numpy as np
import optax

from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import curves
from disco_rl.meta_training import footprint
from disco_rl.meta_training import held_out as held_out_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.runtime import checkpointing
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import memory
from disco_rl.runtime import metrics
from disco_rl.runtime import progress
from disco_rl.runtime import sharding
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs
from disco_rl.update_rules import weights

# These may change: a run can be continued, on other devices.
_FREE = (
  'meta_steps',
  'checkpoint_every',
  'keep_checkpoints',
  'batch_devices',
  'cpu_devices',
)
# Failures of one agent in a row, over so many lives, end a run.
_MAX_FAILURES = 3
_COLUMNS = ('meta_step', 'environment')


@dataclasses.dataclass(frozen=True)
class _State:
  """What discovery changes.

  Attributes:
    meta_step: changes of the rule so far.
    rule_params: eta.
    groups: members of each group.
    lifetimes: of each group's members.
  """

  meta_step: int
  rule_params: types.Params
  groups: Sequence[inner_loop_lib.Member]
  lifetimes: Sequence[lifetimes_lib.Lifetimes]


class MetaTrainer:
  """One run in one folder.

  Everything that can be wrong with the settings is found when this is built,
  before anything is compiled for long, or written.
  """

  def __init__(self, config: config_lib.MetaTrainingConfig):
    """Builds the population, the rule and what it is tried on.

    Args:
      config: what to train.

    Raises:
      ValueError: a setting, name or file is not valid, or memory is too small.
      FileNotFoundError: there is no file of weights at the path.
      ImportError: an environment needs a package that is not installed.
    """
    self._config = config
    build.validate((*config.environments, *config.held_out.environments))
    self._rule, params = build.make_rule(config)
    self._mesh = sharding.make_mesh(config.batch_devices)
    self._initial_params = sharding.put(params, self._mesh, sharding.REPLICATED)
    self._groups = build.make_groups(config, self._rule)
    # Of the environment of each agent, group by group.
    self._names = [n for group in self._groups for n in group.config.names]
    footprint.check(self._groups, config.mode, self._initial_params)
    self._held_out = held_out_lib.HeldOut(
      config.held_out,
      config.agent,
      self._rule,
      config.seed,
      config.preprocessing,
    )
    self._apply = compilation.Program(self._move)
    self._key = jax.random.key(config.seed)

  def run(
    self, workdir: str | pathlib.Path, description: Mapping[str, Any]
  ) -> dict[str, Any]:
    """Trains, or goes on from the last checkpoint in the folder.

    Writes config.json, initial_rule.npz, metrics.csv, tensorboard/, held_out/,
    checkpoints/, rule.npz (at each checkpoint), summary.json and curves.png.

    Args:
      workdir: the folder of the run.
      description: the settings as the user gave them, for config.json.

    Returns:
      The summary, as in summary.json: meta_steps, agents, environment_steps,
      return (by environment), held_out (by environment, of fresh agents),
      seconds, compile_seconds, peak_memory_bytes, checkpoint_seconds (since
      the last resumption, that saving held up the run). Of many processes only
      the first returns it, and writes anything but its part of the checkpoints.

    Raises:
      workdirs.WorkdirError: the folder holds a run with other settings, or
        another run is at work in it; it stays as it is.
      metrics.NonFiniteError: an agent's losses are not finite, life after life.
      checkpointing.CheckpointError: one cannot be written, or none be read.
      signals.Interrupted: a signal asked the run to end; it has saved.
    """
    workdir = pathlib.Path(workdir)
    with distributed.folder(workdir) as own, workdirs.locked(own):
      workdirs.claim(own, description, _FREE)
      distributed.wait('the folder is claimed')
      return self._run(own, workdir / 'checkpoints')

  def _run(
    self, workdir: pathlib.Path, checkpoints: pathlib.Path
  ) -> dict[str, Any]:
    """See `run`; in a folder that is this process's."""
    start = time.perf_counter()
    weights.save(
      workdir / 'initial_rule.npz', jax.device_get(self._initial_params)
    )
    state = self._init()
    with checkpointing.Checkpointer(
      checkpoints, self._config.keep_checkpoints
    ) as checkpointer:
      if newest := checkpointer.restore(_to_tree(state, 0.0)):
        state = self._from_tree(*newest)
        start -= float(newest[1]['seconds'])
      state = self._train(workdir, state, checkpointer, start)
    if not distributed.is_first():
      return {}
    summary = {
      **self._summarise(workdir, time.perf_counter() - start),
      'checkpoint_seconds': checkpointer.seconds,
    }
    metrics.write_json(workdir / 'summary.json', summary)
    curves.meta_training_curves(workdir, workdir / 'curves.png')
    return summary

  def _init(self) -> _State:
    """Newborn agents, and the rule to begin with."""
    rng = np.random.default_rng([self._config.seed, 0])
    groups, lifetimes = [], []
    for i, group in enumerate(self._groups):
      keys = self._keys(0, i)
      groups.append(group.init(keys, self._initial_params))
      lifetimes.append(
        lifetimes_lib.init(rng, self._config.lifetimes, len(keys))
      )
    return _State(0, self._initial_params, groups, lifetimes)

  def _keys(self, meta_step: int, group: int) -> types.Array:
    """Keys of the agents of a group that are born at a meta-step."""
    key = jax.random.fold_in(jax.random.fold_in(self._key, meta_step), group)
    return jax.random.split(key, self._groups[group].config.num_members)

  def _from_tree(self, meta_step: int, tree: dict[str, Any]) -> _State:
    """The state in a checkpoint; undoes `_to_tree`."""
    return _State(
      meta_step=meta_step,
      rule_params=tree['rule_params'],
      groups=[
        group.resume(members)
        for group, members in zip(self._groups, tree['groups'])
      ],
      lifetimes=[
        lifetimes_lib.Lifetimes(*map(np.asarray, columns))
        for columns in tree['lifetimes']
      ],
    )

  def _train(
    self,
    workdir: pathlib.Path,
    state: _State,
    checkpointer: checkpointing.Checkpointer,
    start: float,
  ) -> _State:
    """Takes the meta-steps that are left; logs, tries and saves on the way."""
    config = self._config
    with (
      metrics.MetricsWriter(workdir, state.meta_step, *_COLUMNS) as writer,
      metrics.MetricsWriter(
        workdir / 'held_out', state.meta_step, *_COLUMNS
      ) as held_out_writer,
      progress.Progress(
        config.meta_steps,
        state.meta_step,
        'meta-step',
        'discovery',
        is_shown=distributed.is_first(),
      ) as bar,
      signals.Requests() as requests,
    ):
      bar.note(self._announcement())
      if state.meta_step == 0:
        self._try(state, held_out_writer, bar)
      while state.meta_step < config.meta_steps:
        state, rows = self._meta_step(state)
        self._report_failures(state, bar)
        writer.write(rows)
        bar.advance(1, **_shown(rows))
        if self._is_due(state, config.held_out.every):
          self._try(state, held_out_writer, bar)
        # All processes end with the same meta-step.
        signal = distributed.largest(requests.received or 0)
        if self._is_due(state, config.checkpoint_every) or signal:
          weights.save(workdir / 'rule.npz', jax.device_get(state.rule_params))
          checkpointer.save(
            state.meta_step, _to_tree(state, time.perf_counter() - start)
          )
        if signal:
          raise signals.Interrupted(signal)
    return state

  def _announcement(self) -> str:
    """Why nothing moves at first."""
    groups = ', '.join(
      f'{group.config.num_members} agents like {group.config.names[0]}'
      for group in self._groups
    )
    return f'compiling a program for each group of agents: {groups}'

  def _is_due(self, state: _State, every: int) -> bool:
    step = state.meta_step
    return step % every == 0 or step == self._config.meta_steps

  def _meta_step(self, state: _State) -> tuple[_State, list[dict[str, Any]]]:
    """All agents live N updates and vote; the rule changes; some are reborn.

    Args:
      state: before; its members are used up.

    Returns:
      The state afterwards, and rows of metrics, one per environment.
    """
    # All groups are asked to live before any is waited for.
    updates, members, logs = zip(
      *(
        group.step(state.rule_params, lived)
        for group, lived in zip(self._groups, state.groups)
      )
    )
    distributed.wait(f'meta-step {state.meta_step}')
    rule_params, norm = self._apply(state.rule_params, updates)
    logs = distributed.fetch(logs)
    lifetimes = [
      lifetimes_lib.advance(
        lived, group.config.inner_loop.steps, group_logs['failed'] > 0
      )
      for group, lived, group_logs in zip(self._groups, state.lifetimes, logs)
    ]
    meta_step = state.meta_step + 1
    rows = self._rows(meta_step, lifetimes, logs, norm)
    groups, lifetimes = self._reset_expired(meta_step, members, lifetimes)
    return _State(meta_step, rule_params, groups, lifetimes), rows

  def _reset_expired(
    self,
    meta_step: int,
    groups: Sequence[inner_loop_lib.Member],
    lifetimes: Sequence[lifetimes_lib.Lifetimes],
  ) -> tuple[list[inner_loop_lib.Member], list[lifetimes_lib.Lifetimes]]:
    """Agents whose life is over are born again; members are used up."""
    groups, lifetimes = list(groups), list(lifetimes)
    for i, lived in enumerate(lifetimes):
      if not lived.over.any():
        continue
      groups[i] = self._groups[i].reset_expired(
        self._keys(meta_step, i), groups[i], lived.over
      )
      rng = np.random.default_rng([self._config.seed, meta_step, i])
      lifetimes[i] = lifetimes_lib.reset_expired(
        rng, self._config.lifetimes, lived
      )
    return groups, lifetimes

  def _move(
    self, rule_params: types.Params, updates: Sequence[types.Params]
  ) -> tuple[types.Params, types.Array]:
    """Moves eta by the mean vote; also returns the norm of the change."""
    of_devices = jax.tree.map(lambda *x: sum(x), *updates)
    total = sharding.sum_over_devices(of_devices, self._mesh)
    mean = jax.tree.map(lambda x: x / self._config.agents, total)
    return optax.apply_updates(rule_params, mean), optax.tree.norm(mean)

  def _rows(
    self,
    meta_step: int,
    lifetimes: Sequence[lifetimes_lib.Lifetimes],
    logs: Sequence[types.Logs],
    rule_update_norm: types.Array,
  ) -> list[dict[str, Any]]:
    """One row for each environment: means over its agents."""
    names = np.array(self._names)
    values = {
      key: np.concatenate([group[key] for group in logs]) for key in logs[0]
    }
    values['age'] = np.concatenate([lived.age for lived in lifetimes])
    steps = np.concatenate(
      [
        np.full(group.config.num_members, group.config.inner_loop.steps)
        for group in self._groups
      ]
    )
    rows = []
    for name in dict.fromkeys(self._names):
      own = names == name
      rows.append(
        {
          'meta_step': meta_step,
          'environment': name,
          'agents': int(own.sum()),
          'environment_steps': meta_step * int(steps[own].sum()),
          'rule_update_norm': float(rule_update_norm),
          **{key: _mean(value[own]) for key, value in values.items()},
          'failed': int(values['failed'][own].sum()),
        }
      )
    return rows

  def _report_failures(self, state: _State, bar: progress.Progress) -> None:
    """Names the agents whose losses were not finite.

    Args:
      state: after a meta-step.
      bar: to write to.

    Raises:
      metrics.NonFiniteError: one of them fails life after life.
    """
    failures = np.concatenate([lived.failures for lived in state.lifetimes])
    for i in np.flatnonzero(failures).tolist():
      what = f'A loss or the meta-gradient of agent {i}, in {self._names[i]}, '
      what += 'is not finite in meta-step'
      if failures[i] >= _MAX_FAILURES:
        first = state.meta_step - int(failures[i]) + 1
        raise metrics.NonFiniteError(
          f'{what}s {first} to {state.meta_step}, though the agent is born '
          'again after each. Likely causes: a learning_rate or '
          'meta_learning_rate that is too high, or rewards that are not finite.'
        )
      bar.note(
        f'{what} {state.meta_step}: its vote is dropped, and it is born again'
      )

  def _try(
    self,
    state: _State,
    writer: metrics.MetricsWriter,
    bar: progress.Progress,
  ) -> None:
    """Tries the rule on held-out environments."""
    # Each process tries it for itself: what all know costs no communication.
    params = state.rule_params
    returns = self._held_out.evaluate(
      distributed.fetch(params) if distributed.is_distributed() else params
    )
    writer.write(held_out_lib.rows(state.meta_step, returns))
    shown = ', '.join(f'{k} {np.mean(v):.3g}' for k, v in returns.items())
    if shown:
      bar.note(f'fresh agents after {state.meta_step} meta-steps: {shown}')

  def _summarise(self, workdir: pathlib.Path, seconds: float) -> dict[str, Any]:
    last = _last_rows(workdir / 'metrics.csv')
    compile_seconds = (
      self._apply.compile_seconds
      + self._held_out.compile_seconds
      + sum(group.compile_seconds for group in self._groups)
    )
    return {
      'rule': self._config.rule,
      'meta_steps': int(last['meta_step'][0]),
      'agents': self._config.agents,
      'environment_steps': int(np.sum(last['environment_steps'])),
      'return': dict(zip(last['environment'].tolist(), last['return'])),
      'held_out': _last_returns(workdir / 'held_out' / 'metrics.csv'),
      'seconds': seconds,
      'compile_seconds': compile_seconds,
      'peak_memory_bytes': memory.peak_bytes(),
    }


def _to_tree(state: _State, seconds: float) -> dict[str, Any]:
  """What a checkpoint holds: all but the number of the meta-step."""
  return {
    'rule_params': state.rule_params,
    'groups': list(state.groups),
    'lifetimes': [(x.age, x.budget, x.failures) for x in state.lifetimes],
    'seconds': np.asarray(seconds),
  }


def _mean(values: np.ndarray) -> float:
  """Over the agents that have one: a return, or a loss that is finite."""
  values = values[np.isfinite(values)]
  return float(np.mean(values)) if len(values) else float('nan')


def _shown(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """What the progress bar shows."""
  returns = np.array([row['return'] for row in rows])
  steps = sum(row['environment_steps'] for row in rows)
  return {'return': _mean(returns), 'steps': f'{steps:.3g}'}


def _last_rows(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Columns of the last meta-step."""
  columns = metrics.read(path)
  is_last = columns['meta_step'] == np.max(columns['meta_step'])
  return {key: column[is_last] for key, column in columns.items()}


def _last_returns(path: pathlib.Path) -> dict[str, Any]:
  """Of the last trial, by environment; empty if none was made."""
  if not metrics.read(path):
    return {}
  last = _last_rows(path)
  return dict(zip(last['environment'].tolist(), last['return']))
