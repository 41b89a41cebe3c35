"""The meta-step: how discovery changes the rule once.

  for each agent i of the population:
    update N times: act, add to replay, sample, learn   inner_loop
    act with the last parameters, for validation        inner_loop
    g_i = gradient of the outer loss w.r.t. eta         meta_gradient, evolution
    u_i = Adam_i(g_i)                                   meta_update
  eta <- eta + (1 / n) sum_i u_i                        meta_update
  reset the agents whose lifetimes have expired         lifetimes, resets

eta are the parameters of the rule. The loop over agents is `Group.step`: all
agents of a group in one program on the device (device_group), or in a few small
ones beside environments on the host (host_group).
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed


@dataclasses.dataclass(frozen=True)
class State:
  """State of discovery.

  Attributes:
    meta_step: number of meta-updates so far.
    rule_params: eta.
    groups: members of each group.
    lifetimes: of each group's members.
  """

  meta_step: int
  rule_params: types.Params
  groups: Sequence[inner_loop_lib.Member]
  lifetimes: Sequence[lifetimes_lib.Lifetimes]

  def to_tree(self, seconds: float) -> dict[str, Any]:
    """Content of a checkpoint: all but the meta-step, which is its name."""
    return {
      'rule_params': self.rule_params,
      'groups': list(self.groups),
      'lifetimes': [(x.age, x.budget, x.failures) for x in self.lifetimes],
      'seconds': np.asarray(seconds),
    }


class MetaStep:
  """Takes meta-steps with a population of groups."""

  def __init__(
    self,
    config: config_lib.MetaTrainingConfig,
    groups: Sequence[population.Group],
    mesh: jax.sharding.Mesh,
  ):
    """Compiles nothing yet.

    Args:
      config: of the run.
      groups: the population.
      mesh: devices of the run.
    """
    self._config = config
    self._groups = groups
    self._key = jax.random.key(config.seed)
    self._apply_mean = compilation.Program(
      lambda rule_params, updates: meta_update.apply_mean(
        rule_params, updates, config.agents, mesh
      )
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self._apply_mean.compile_seconds + sum(
      group.compile_seconds for group in self._groups
    )

  def calls(self, rule_params: types.Params) -> list[compilation.Call]:
    """Programs of all groups, to be compiled in parallel; longest first."""
    of_groups = [group.calls(rule_params) for group in self._groups]
    turns = itertools.zip_longest(*of_groups)
    return [call for turn in turns for call in turn if call is not None]

  def init(self, rule_params: types.Params) -> State:
    """Initial agents, and the rule to start from."""
    rng = np.random.default_rng([self._config.seed, 0])
    groups, lifetimes = [], []
    for i, group in enumerate(self._groups):
      keys = self._keys(0, i)
      groups.append(group.init(keys, rule_params))
      lifetimes.append(
        lifetimes_lib.init(rng, self._config.lifetimes, len(keys))
      )
    return State(0, rule_params, groups, lifetimes)

  def restore(self, meta_step: int, tree: Mapping[str, Any]) -> State:
    """The state in a checkpoint; inverse of `State.to_tree`."""
    return State(
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

  def __call__(self, state: State) -> tuple[State, list[dict[str, Any]], float]:
    """Takes one meta-step; see above.

    Args:
      state: before; its members are donated.

    Returns:
      The state afterwards, logs [n] of each group, and the norm of the change
      of eta.
    """
    # The programs of all groups are started before any is waited for.
    updates, members, device_logs = zip(
      *(
        group.step(state.rule_params, members)
        for group, members in zip(self._groups, state.groups)
      )
    )
    distributed.wait(f'meta-step {state.meta_step}')
    rule_params, norm = self._apply_mean(state.rule_params, updates)
    lifetimes: list[lifetimes_lib.Lifetimes] = []
    logs: list[dict[str, Any]] = []
    for group, before, x in zip(
      self._groups, state.lifetimes, distributed.fetch(device_logs)
    ):
      steps = group.config.inner_loop.steps
      lifetimes.append(lifetimes_lib.advance(before, steps, x['failed'] > 0))
      logs.append({**x, 'age': lifetimes[-1].age})
    meta_step = state.meta_step + 1
    groups, lifetimes = self._reset_expired(meta_step, members, lifetimes)
    return State(meta_step, rule_params, groups, lifetimes), logs, float(norm)

  def _reset_expired(
    self,
    meta_step: int,
    groups: Sequence[inner_loop_lib.Member],
    lifetimes: Sequence[lifetimes_lib.Lifetimes],
  ) -> tuple[list[inner_loop_lib.Member], list[lifetimes_lib.Lifetimes]]:
    """Resets the agents whose lifetimes have expired; members are donated."""
    groups, lifetimes = list(groups), list(lifetimes)
    for i, before in enumerate(lifetimes):
      if not before.expired.any():
        continue
      groups[i] = self._groups[i].reset_expired(
        self._keys(meta_step, i), groups[i], before.expired
      )
      rng = np.random.default_rng([self._config.seed, meta_step, i])
      lifetimes[i] = lifetimes_lib.reset_expired(
        rng, self._config.lifetimes, before
      )
    return groups, lifetimes

  def _keys(self, meta_step: int, group: int) -> types.Array:
    """Keys of the agents of a group that are reset at a meta-step."""
    key = jax.random.fold_in(jax.random.fold_in(self._key, meta_step), group)
    return jax.random.split(key, self._groups[group].config.num_members)
