"""The meta-step: one change of the rule in discovery.

  for each agent i of the population:
    update N times: act, add to replay, sample, learn   inner_loop
    act with the last parameters, for validation        inner_loop
    g_i = gradient of the outer loss w.r.t. eta         registry: the estimators
    u_i = Adam_i(g_i)                                   meta_update
  eta <- eta + (1 / n) sum_i u_i                        meta_update
  reset the agents whose lifetimes have expired         lifetimes, resets

eta are the parameters of the rule; Adam_i clips g_i and includes the minus
sign. The loop over agents is `Group.step`: one program on the device for
JAX-native environments (device_group), in which the estimator makes the
updates. With environments on the host, agents are computed in micro-batches
(host_group), and act while they learn: in each rollout, except for validation,
with the parameters before the last update. There the group makes the updates,
and calls `outer_gradient` and `backward` of the estimator.
`build._make_group` chooses between the two.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import functools
import itertools
import pathlib

import jax
import numpy as np
import optax

from disco_rl import types
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import sharding


@dataclasses.dataclass(frozen=True)
class State:
  """The state of discovery.

  Attributes:
    meta_step: The number of meta-updates so far.
    rule_params: eta.
    opt_state: The states of an Adam that the agents share, and of the mean of
      eta; empty if there is neither.
    members: The members of each group.
    lifetimes: The lifetimes of each group's members.
    environment_steps: All environment steps so far in the place of each member
      of each group, [n] int64, including those of agents before resets.
  """

  meta_step: int
  rule_params: types.Params
  opt_state: types.PyTree
  members: Sequence[inner_loop_lib.Member]
  lifetimes: Sequence[lifetimes_lib.Lifetimes]
  environment_steps: Sequence[np.ndarray]

  @property
  def rule(self) -> types.Params:
    """The parameters of the evaluated and saved rule: eta or its mean."""
    return meta_update.averaged(self.opt_state, self.rule_params)


class MetaStep:
  """Takes meta-steps with a population of groups."""

  def __init__(
    self,
    config: meta_config.MetaTrainingConfig,
    groups: Sequence[population.Group],
    mesh: jax.sharding.Mesh,
  ):
    """Compiles nothing yet."""
    self._config = config
    self._groups = groups
    self._mesh = mesh
    self._is_divided = any(group.config.mesh != mesh for group in groups)
    self._key = jax.random.key(config.seed)
    _, optimizer = meta_update.meta_optimizers(config)
    self._init_optimizer = lambda rule_params: sharding.to_devices(
      optimizer.init(rule_params), mesh, sharding.REPLICATED
    )
    self._apply_mean = compilation.Program(
      lambda rule_params, opt_state, updates: meta_update.apply_mean(
        optimizer, rule_params, opt_state, updates, config.agents, mesh
      )
    )

  def calls(self, rule_params: types.Params) -> list[compilation.Call]:
    """Returns programs to be compiled in parallel, longest first."""
    of_groups = [
      group.named_calls(rule)
      for group, rule in zip(self._groups, self._rules(rule_params))
    ]
    by_rank = itertools.zip_longest(*(calls.values() for calls in of_groups))
    return [call for calls in by_rank for call in calls if call is not None]

  def init(self, rule_params: types.Params) -> State:
    """Makes initial agents, with the initial rule."""
    rng = np.random.default_rng([self._config.seed, 0])
    members, lifetimes = [], []
    for i, (group, rule) in enumerate(
      zip(self._groups, self._rules(rule_params))
    ):
      keys = self._keys(0, i)
      members.append(group.init(keys, rule))
      lifetimes.append(
        lifetimes_lib.init(rng, self._config.lifetimes, len(keys))
      )
    return State(
      meta_step=0,
      rule_params=rule_params,
      opt_state=self._init_optimizer(rule_params),
      members=members,
      lifetimes=lifetimes,
      environment_steps=self._steps_of_present_settings(0),
    )

  def _steps_of_present_settings(self, meta_steps: int) -> list[np.ndarray]:
    """Returns the environment steps of so many meta-steps."""
    return [
      np.full(
        group.config.num_members, meta_steps * group.steps.total, np.int64
      )
      for group in self._groups
    ]

  def to_tree(self, state: State) -> dict[str, types.PyTree]:
    """Returns the content of a checkpoint, whose name is the meta-step.

    Replay of environments on the host is not part of it: see `save_replays`.
    """
    # Checkpoints cannot have empty entries.
    optional = {
      'meta_opt_state': state.opt_state,
      'environments': {
        str(i): saved
        for i, group in enumerate(self._groups)
        if (saved := group.cohort.save_episodes()) is not None
      },
    }
    return {
      **{name: x for name, x in optional.items() if jax.tree.leaves(x)},
      'rule_params': state.rule_params,
      'groups': [
        group.to_checkpoint(members)
        for group, members in zip(self._groups, state.members)
      ],
      'lifetimes': [(x.age, x.budget, x.failures) for x in state.lifetimes],
      'environment_steps': [*state.environment_steps],
    }

  def open_replays(self, directory: pathlib.Path) -> None:
    """Prepares a directory for the replay of each group."""
    for i, group in enumerate(self._groups):
      group.cohort.open_replays(directory / str(i))

  def save_replays(self) -> None:
    """Saves replay that is not part of `to_tree`, before a checkpoint."""
    for group in self._groups:
      group.cohort.save_replays(self._config.keep_checkpoints)

  def restore_replays(self, tree: Mapping[str, types.PyTree]) -> None:
    """Restores this replay, as it was when `to_tree` returned `tree`."""
    for group, members in zip(self._groups, tree['groups']):
      group.restore_replays(members)

  def restore(self, meta_step: int, tree: Mapping[str, types.PyTree]) -> State:
    """Makes the state from a checkpoint; the inverse of `to_tree`."""
    environments = tree.get('environments', {})
    return State(
      meta_step=meta_step,
      rule_params=tree['rule_params'],
      opt_state=tree.get('meta_opt_state', optax.EmptyState()),
      members=[
        group.resume(members, meta_step, environments.get(str(i)))
        for i, (group, members) in enumerate(zip(self._groups, tree['groups']))
      ],
      lifetimes=[
        lifetimes_lib.Lifetimes(*map(np.asarray, columns))
        for columns in tree['lifetimes']
      ],
      # Checkpoints of version 0.2 lack them.
      environment_steps=tree.get(
        'environment_steps', self._steps_of_present_settings(meta_step)
      ),
    )

  def __call__(
    self, state: State
  ) -> tuple[State, list[dict[str, np.ndarray]], float]:
    """Takes one meta-step, as the module describes.

    Args:
      state: The state before, whose members are donated.

    Returns:
      The next state, logs [n] of each group, and the norm of the change of eta.
    """
    updates, stepped, device_logs = self._step_groups(state)
    # Rows that are done would wait in the all-reduce, which may time out.
    jax.block_until_ready(updates)
    distributed.wait(f'meta-step {state.meta_step}')
    rule_params, opt_state, norm = self._apply_mean(
      state.rule_params, state.opt_state, updates
    )
    lifetimes: list[lifetimes_lib.Lifetimes] = []
    logs: list[dict[str, np.ndarray]] = []
    environment_steps: list[np.ndarray] = []
    for group, before, steps_before, of_group in zip(
      self._groups, state.lifetimes, state.environment_steps, device_logs
    ):
      group_logs = group.fetch(of_group)
      # The first agents may begin at any age, later ones begin at zero.
      is_new = (before.age == 0) | (state.meta_step == 0)
      first = is_new * group.fill_steps
      environment_steps.append(
        steps_before
        + group.estimator.agents_per_member * first
        + group.steps.total
      )
      steps = lifetimes_lib.aging(
        self._config.lifetimes,
        group.steps.per_member + first,
        group.config.inner_loop.agent.environment_spec.action_repeat,
      )
      failed = group_logs['failed'] > 0
      lifetimes.append(lifetimes_lib.advance(before, steps, failed))
      logs.append({**group_logs, 'age': lifetimes[-1].age})
    meta_step = state.meta_step + 1
    members, lifetimes = self._reset_expired(meta_step, stepped, lifetimes)
    state = State(
      meta_step, rule_params, opt_state, members, lifetimes, environment_steps
    )
    return state, logs, float(norm)

  def _step_groups(
    self, state: State
  ) -> tuple[
    Sequence[types.Params],
    Sequence[inner_loop_lib.Member],
    Sequence[types.Logs],
  ]:
    """Steps all groups; returns sums of updates, members and logs of each."""
    steps = [
      functools.partial(group.step, rule, members)
      for group, rule, members in zip(
        self._groups, self._rules(state.rule_params), state.members
      )
    ]
    if not self._is_divided:
      # Programs of all groups on the device start before waiting for results.
      updates, members, logs = zip(*(step() for step in steps))
      return updates, members, logs
    # Groups on the host act and learn at the same time, each on its own rows.
    with futures.ThreadPoolExecutor(len(steps)) as pool:
      started = [pool.submit(step) for step in steps]
      updates, members, logs = zip(*(step.result() for step in started))
    joined = sharding.join_rows(updates, state.rule_params, self._mesh)
    return [joined], members, logs

  def _rules(self, rule_params: types.Params) -> list[types.Params]:
    """Returns eta on the devices of each group."""
    return [
      sharding.part_on(rule_params, group.config.mesh) for group in self._groups
    ]

  def _reset_expired(
    self,
    meta_step: int,
    members: Sequence[inner_loop_lib.Member],
    lifetimes: Sequence[lifetimes_lib.Lifetimes],
  ) -> tuple[list[inner_loop_lib.Member], list[lifetimes_lib.Lifetimes]]:
    """Resets the agents whose lifetimes have expired; members are donated."""
    members, lifetimes = list(members), list(lifetimes)
    for i, before in enumerate(lifetimes):
      if not before.expired.any():
        continue
      members[i] = self._groups[i].reset_expired(
        self._keys(meta_step, i), members[i], before.expired
      )
      rng = np.random.default_rng([self._config.seed, meta_step, i])
      lifetimes[i] = lifetimes_lib.reset_expired(
        rng, self._config.lifetimes, before
      )
    return members, lifetimes

  def _keys(self, meta_step: int, group: int) -> types.Array:
    """Makes the keys of agents of a group that are reset at a meta-step."""
    key = jax.random.fold_in(jax.random.fold_in(self._key, meta_step), group)
    return jax.random.split(key, self._groups[group].config.num_members)
