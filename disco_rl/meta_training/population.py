"""The population: groups of agents of one kind, each with a program of its own.

Agents whose environments have equal shapes form a group, whose members are
mapped over in chunks; other shapes are other groups. Every member votes for a
change of the rule; the trainer takes the mean of all votes.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from disco_rl import actor
from disco_rl import compilation
from disco_rl import episodes
from disco_rl import host_actor
from disco_rl import hosts
from disco_rl import replay as replay_lib
from disco_rl import sharding
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import joined
from disco_rl.meta_training import living as living_lib
from disco_rl.meta_training import meta_gradient

# Updates of eta, for each device summed over its members; the members; values
# [n] to log.
Votes = tuple[types.Params, living_lib.Member, types.Logs]


@dataclasses.dataclass(frozen=True)
class GroupConfig:
  """What the members of a group share.

  Attributes:
    names: of the members' environments, one each.
    living: how they live.
    estimator: of the meta-gradient.
    optimizer: of eta, one state per member.
    chunk_size: members that a device computes at a time, at most.
    mesh: devices that the members are spread over.

  Raises:
    ValueError: they cannot be spread evenly.
  """

  names: tuple[str, ...]
  living: living_lib.Living
  estimator: living_lib.Estimator
  optimizer: optax.GradientTransformation
  chunk_size: int
  mesh: jax.sharding.Mesh = dataclasses.field(
    default_factory=sharding.make_mesh
  )

  def __post_init__(self) -> None:
    sharding.check(
      self.num_members, self.mesh, f'with environments like {self.names[0]}'
    )
    living = self.living
    for name, size in (
      ('batch_size', living.agent.config.batch_size),
      ('validation_trajectories', living.config.validation_trajectories),
    ):
      sharding.check_batch(size, self.mesh, name)

  @property
  def num_members(self) -> int:
    """The n of all axes."""
    return len(self.names)

  @property
  def own_members(self) -> range:
    """Those whose environments on the host this process steps."""
    rows = self.mesh.devices[:, 0]
    share = self.num_members // len(rows)
    own = [
      i for i, x in enumerate(rows) if x.process_index == jax.process_index()
    ]
    return range(own[0] * share, (own[-1] + 1) * share)

  @property
  def chunk(self) -> int:
    """Members computed at a time: the largest divisor that is allowed."""
    share = self.num_members // self.mesh.shape[sharding.AGENTS]
    sizes = range(1, min(self.chunk_size, share) + 1)
    return max(size for size in sizes if share % size == 0)

  def program(
    self,
    function: Callable[..., Any],
    in_specs: tuple[Any, ...],
    donate_argnums: int | tuple[int, ...] = (),
    runs_often: bool = True,
    out_specs: Any = sharding.SPLIT,
  ) -> compilation.Program:
    """A program that each device runs on its share of the members.

    Args:
      function: of eta or trees [n, ...]; returns trees [n, ...].
      in_specs: `sharding.REPLICATED` for eta, `sharding.SPLIT` for the others.
      donate_argnums: arguments that the results may take the place of.
      runs_often: see `compilation.Program`.
      out_specs: of the results.

    Returns:
      The program.
    """
    shares = sharding.per_device(function, self.mesh, in_specs, out_specs)
    return compilation.Program(shares, donate_argnums, runs_often)

  def split(self, tree: Any) -> Any:
    """Trees [n, ...] as programs take them."""
    return sharding.put(tree, self.mesh, sharding.SPLIT)

  def own_part(self, tree: Any) -> Any:
    """Trees [n, ...] -> [own, ...], of this process's members."""
    return hosts.own_part(tree, self.mesh, sharding.SPLIT)

  def join_parts(self, tree: Any) -> Any:
    """Trees [own, ...] of all processes -> [n, ...], as programs take them."""
    if not hosts.are_many():
      return self.split(tree)
    return hosts.from_parts(tree, self.mesh, sharding.SPLIT)


class Group(Protocol):
  """n agents with environments of equal shapes."""

  config: GroupConfig

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    ...

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> living_lib.Member:
    """Newborn members, leading axis n, from PRNG keys [n]."""
    ...

  def resume(self, members: living_lib.Member) -> living_lib.Member:
    """Takes up members from a checkpoint."""
    ...

  def step(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> Votes:
    """Lives N updates, and votes for a change of eta.

    The members that are passed in are used up: their buffers are donated.
    """
    ...

  def renew(
    self, keys: types.Array, members: living_lib.Member, over: np.ndarray
  ) -> living_lib.Member:
    """Replaces the members whose life is over by newborn ones.

    Parameters, optimiser, the rule's share, meta-value function, replay and
    environments are new; the moments of eta's optimiser remain.

    Args:
      keys: [n] PRNG keys.
      members: leading axis n; used up.
      over: [n] bool.

    Returns:
      The members.
    """
    ...


class _Births:
  """How members come into the world, whatever their environments."""

  def __init__(self, config: GroupConfig, newborns: compilation.Program):
    """Compiles nothing yet.

    Args:
      config: what the members share.
      newborns: makes members without what `complete` adds, of keys [n].
    """
    self._config = config
    self._newborns = newborns
    self._complete = config.program(
      functools.partial(complete, config),
      (sharding.REPLICATED, sharding.SPLIT),
      runs_often=False,
    )
    self._replace = config.program(
      replace_where, 3 * (sharding.SPLIT,), donate_argnums=2, runs_often=False
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    programs = (self._newborns, self._complete, self._replace)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params, *environments: Any
  ) -> living_lib.Member:
    """See `Group.init`."""
    newborns = self._newborns(self._config.split(keys), *environments)
    return self._complete(rule_params, newborns)

  def renew(
    self,
    keys: types.Array,
    members: living_lib.Member,
    over: np.ndarray,
    *environments: Any,
  ) -> living_lib.Member:
    """See `Group.renew`."""
    split = self._config.split
    newborns = self._newborns(split(keys), *environments)
    return self._replace(split(jnp.asarray(over)), newborns, members)


class DeviceGroup:
  """Members in JAX-native environments: a step is one program."""

  def __init__(
    self, config: GroupConfig, environments: Sequence[base.JaxEnvironment]
  ):
    """Stacks the environments, one for each member."""
    self.config = config
    self._environments = config.split(stack(environments))
    self._births = _Births(
      config,
      config.program(
        jax.vmap(self._newborn), 2 * (sharding.SPLIT,), runs_often=False
      ),
    )
    self._step = config.program(
      self._step_all,
      (sharding.REPLICATED, sharding.SPLIT, sharding.SPLIT),
      donate_argnums=1,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self._step.compile_seconds + self._births.compile_seconds

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> living_lib.Member:
    """See `Group.init`."""
    return self._births.init(keys, rule_params, self._environments)

  def resume(self, members: living_lib.Member) -> living_lib.Member:
    """They hold all there is; see `Group.resume`."""
    return members

  def step(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> Votes:
    """See `Group.step`."""
    return self._step(rule_params, members, self._environments)

  def compile(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> jax.stages.Compiled:
    """The program of `step`, to be analysed."""
    return self._step.compile(rule_params, members, self._environments)

  def renew(
    self, keys: types.Array, members: living_lib.Member, over: np.ndarray
  ) -> living_lib.Member:
    """See `Group.renew`."""
    return self._births.renew(keys, members, over, self._environments)

  def _newborn(
    self, key: types.Array, environment: base.JaxEnvironment
  ) -> living_lib.Member:
    life_key, actor_key = jax.random.split(key)
    actors = actor.init(
      actor_key,
      self.config.living.agent.network,
      environment,
      self.config.living.agent.config.num_environments,
    )
    return dataclasses.replace(
      newborn(self.config.living, life_key), actor=actors
    )

  def _step_all(
    self, rule_params: types.Params, members: Any, environments: Any
  ) -> Votes:
    def one(
      member: living_lib.Member, environment: base.JaxEnvironment
    ) -> Votes:
      gradient, member, logs = self.config.estimator(
        rule_params, member, environment
      )
      return vote(self.config, rule_params, member, gradient, logs)

    return collect_votes(self.config, rule_params, one, members, environments)


class HostGroup:
  """Members in environments on the host: these step between small programs."""

  def __init__(
    self,
    config: GroupConfig,
    environments: Sequence[base.HostEnvironment],
    estimator: meta_gradient.MetaGradient,
  ):
    """Begins an episode in every environment.

    Args:
      config: what the members share.
      environments: E environments for each of this process's members.
      estimator: of the meta-gradient, from what was lived.
    """
    self.config = config
    self._estimator = estimator
    self._environment = joined.JoinedEnvironment(environments)
    self._actor = host_actor.HostActor(
      config.living.agent.network, self._environment, len(environments)
    )
    self._count = jax.jit(jax.vmap(episodes.update))
    self._births = _Births(
      config,
      config.program(
        jax.vmap(functools.partial(newborn, config.living)),
        (sharding.SPLIT,),
        runs_often=False,
      ),
    )
    rule, members = sharding.REPLICATED, sharding.SPLIT
    specs: Any = (members, sharding.SPLIT_BATCH, members)
    lived = living_lib.Trajectory(*specs)
    self._learn = config.program(
      self._learn_all,
      (rule, members, members),
      donate_argnums=1,
      out_specs=(members, lived, members),
    )
    all_lived = config.living.config.inner_updates * (lived,)
    self._vote = config.program(
      self._vote_all,
      (rule, members, all_lived, members, members),
      donate_argnums=1,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    programs = (self._births, self._learn, self._vote)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> living_lib.Member:
    """See `Group.init`."""
    return self._births.init(keys, rule_params)

  def resume(self, members: living_lib.Member) -> living_lib.Member:
    """Episodes begin anew, as environments are not saved."""
    statistics = members.agent.episodes
    statistics = dataclasses.replace(
      statistics, running=jnp.zeros_like(statistics.running)
    )
    agents = dataclasses.replace(members.agent, episodes=statistics)
    return dataclasses.replace(members, agent=agents)

  def step(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> Votes:
    """See `Group.step`."""
    living = self.config.living
    members, learnt = host_actor.overlap(
      members,
      living.config.inner_updates,
      give_orders,
      self._act,
      lambda members, acted: self._learn_from(rule_params, members, *acted),
    )
    rollouts = []
    for _ in range(living.validation_rollouts):
      members, orders = give_orders(members)
      rollout, is_last = self._act(orders)
      members = self._count_episodes(members, rollout, is_last)
      rollouts.append(rollout)
    lived, logs = zip(*learnt)
    return self._vote(rule_params, members, lived, rollouts, logs)

  def renew(
    self, keys: types.Array, members: living_lib.Member, over: np.ndarray
  ) -> living_lib.Member:
    """See `Group.renew`."""
    own = self.config.own_members
    for index in np.flatnonzero(over[own.start : own.stop]).tolist():
      self._actor.replace_observation(index, self._environment.reset_one(index))
    return self._births.renew(keys, members, over)

  def _act(
    self, orders: host_actor.Orders
  ) -> tuple[types.Rollout, types.Array]:
    acted = self._actor.unroll(
      self.config.own_part(orders),
      self.config.living.agent.config.unroll_length,
    )
    return self.config.join_parts(acted)

  def _learn_from(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> tuple[living_lib.Member, tuple[living_lib.Trajectory, types.Logs]]:
    members = self._count_episodes(members, rollout, is_last)
    members, lived, logs = self._learn(rule_params, members, rollout)
    return members, (lived, logs)

  def _count_episodes(
    self,
    members: living_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> living_lib.Member:
    statistics = self._count(members.agent.episodes, rollout.reward, is_last)
    agents = dataclasses.replace(members.agent, episodes=statistics)
    return dataclasses.replace(members, agent=agents)

  def _learn_all(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    rollout: types.Rollout,
  ) -> tuple[living_lib.Member, living_lib.Trajectory, types.Logs]:
    living = self.config.living
    agents, batches = jax.vmap(living.agent.remember)(members.agent, rollout)
    members, replay = without_replay(dataclasses.replace(members, agent=agents))
    members, lived, logs = map_chunks(
      self.config,
      lambda member, batch: living.learn(rule_params, member, batch),
      members,
      batches,
    )
    return with_replay(members, replay), lived, logs

  def _vote_all(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    lived: Sequence[living_lib.Trajectory],
    rollouts: Sequence[types.Rollout],
    logs: Sequence[types.Logs],
  ) -> Votes:
    def one(
      member: living_lib.Member,
      lived: Sequence[living_lib.Trajectory],
      rollouts: Sequence[types.Rollout],
      logs: Sequence[types.Logs],
    ) -> Votes:
      gradient, member, outer_logs = self._estimator.differentiate(
        rule_params,
        member,
        self.config.living.segments(stack(lived)),
        living_lib.join(stack(rollouts)),
      )
      means = jax.tree.map(jnp.mean, stack(logs))
      return vote(
        self.config, rule_params, member, gradient, {**means, **outer_logs}
      )

    members, replay = without_replay(members)
    updates, members, all_logs = collect_votes(
      self.config, rule_params, one, members, lived, rollouts, logs
    )
    return updates, with_replay(members, replay), all_logs


def without_replay(
  members: living_lib.Member,
) -> tuple[living_lib.Member, replay_lib.ReplayState]:
  """Members for a loop that does not need what they remember.

  It would copy that, most of a member's memory, at every turn.
  """
  missing: Any = None
  agents = dataclasses.replace(members.agent, replay=missing)
  return dataclasses.replace(members, agent=agents), members.agent.replay


def with_replay(
  members: living_lib.Member, replay: replay_lib.ReplayState
) -> living_lib.Member:
  """Undoes `without_replay`."""
  agents = dataclasses.replace(members.agent, replay=replay)
  return dataclasses.replace(members, agent=agents)


def give_orders(
  members: living_lib.Member,
) -> tuple[living_lib.Member, host_actor.Orders]:
  """Prepares members for acting; see `host_actor.give_orders`."""
  agents, orders = host_actor.give_orders(members.agent)
  return dataclasses.replace(members, agent=agents), orders


def newborn(living: living_lib.Living, key: types.Array) -> living_lib.Member:
  """A member without what `complete` adds, and without environments."""
  agent_key, value_key = jax.random.split(key)
  missing: Any = None
  agent = living.agent.init(agent_key)
  return living_lib.Member(
    agent=dataclasses.replace(agent, replay=missing),
    actor=None,
    meta_value=living.meta_value.init(value_key),
    meta_opt_state=None,
  )


def complete(
  config: GroupConfig, rule_params: types.Params, newborns: living_lib.Member
) -> living_lib.Member:
  """Gives newborn members an empty replay, and moments of eta's optimiser."""
  (share,) = newborns.agent.key.shape
  every = lambda x: jnp.tile(x, (share, *[1] * x.ndim))
  empty = config.living.agent.empty_replay()
  return dataclasses.replace(
    newborns,
    agent=dataclasses.replace(
      newborns.agent, replay=jax.tree.map(every, empty)
    ),
    meta_opt_state=jax.tree.map(every, config.optimizer.init(rule_params)),
  )


def replace_where(
  over: types.Array, newborns: living_lib.Member, members: living_lib.Member
) -> living_lib.Member:
  """Takes the newborn members where a life is over; see `Group.renew`."""
  # An empty replay is one in which nothing counts as filled: its storage, most
  # of a member's memory, stays as it is.
  replay = members.agent.replay
  replay = dataclasses.replace(replay, added=jnp.zeros_like(replay.added))
  newborns = dataclasses.replace(
    newborns,
    agent=dataclasses.replace(newborns.agent, replay=replay),
    meta_opt_state=members.meta_opt_state,
  )
  choose = lambda over, new, old: jax.tree.map(
    lambda x, y: jnp.where(over, x, y), new, old
  )
  return jax.vmap(choose)(over, newborns, members)


def vote(
  config: GroupConfig,
  rule_params: types.Params,
  member: living_lib.Member,
  gradient: types.Params,
  logs: types.Logs,
) -> Votes:
  """Puts a member's gradient through its own optimiser.

  Where the gradient or a loss is not finite, the vote is zero and the optimiser
  stays as it was.

  Args:
    config: of the member's group.
    rule_params: eta.
    member: that votes.
    gradient: of the outer loss.
    logs: of the member, scalars.

  Returns:
    The vote, the member, and logs; `failed` is 1 where something was not
    finite.
  """
  updates, opt_state = config.optimizer.update(
    gradient, member.meta_opt_state, rule_params
  )
  logs = {
    **logs,
    'meta_gradient_norm': optax.tree.norm(gradient),
    'meta_update_norm': optax.tree.norm(updates),
  }
  is_finite = jnp.isfinite(jnp.stack(jax.tree.leaves(logs))).all()
  keep = lambda new, old: jax.tree.map(
    lambda x, y: jnp.where(is_finite, x, y), new, old
  )
  updates = keep(updates, optax.tree.zeros_like(updates))
  opt_state = keep(opt_state, member.meta_opt_state)
  logs = {
    **logs,
    # It has no value before an episode ends.
    'return': episodes.mean_return(member.agent.episodes),
    'failed': 1.0 - is_finite,
  }
  return updates, dataclasses.replace(member, meta_opt_state=opt_state), logs


def collect_votes(
  config: GroupConfig,
  rule_params: types.Params,
  function: Callable[..., Votes],
  *trees: Any,
) -> Votes:
  """Maps over members in chunks; updates are summed on the way."""

  def chunk(total: types.Params | None, trees: Any) -> tuple[Any, Any]:
    updates, members, logs = mapped(config, function)(*trees)
    if config.chunk > 1:
      updates = jax.tree.map(lambda x: jnp.sum(x, axis=0), updates)
    return optax.tree.add(total, updates), (members, logs)

  zeros = optax.tree.zeros_like(rule_params)
  updates, (members, logs) = jax.lax.scan(chunk, zeros, chunks(config, trees))
  members, logs = join_chunks(config, (members, logs))
  return sharding.as_share(updates), members, logs


def map_chunks(
  config: GroupConfig, function: Callable[..., Any], *trees: Any
) -> Any:
  """Maps over members in chunks, one chunk after the other."""
  return join_chunks(
    config,
    jax.lax.map(
      lambda trees: mapped(config, function)(*trees), chunks(config, trees)
    ),
  )


def mapped(
  config: GroupConfig, function: Callable[..., Any]
) -> Callable[..., Any]:
  """The function for a chunk; single members need no axis."""
  return jax.vmap(function) if config.chunk > 1 else function


def chunks(config: GroupConfig, tree: Any) -> Any:
  """[n, ...] -> [n / c, c, ...]; without the axis c where c = 1."""
  if config.chunk == 1:
    return tree
  return jax.tree.map(lambda x: x.reshape(-1, config.chunk, *x.shape[1:]), tree)


def join_chunks(config: GroupConfig, tree: Any) -> Any:
  """Undoes `chunks`."""
  if config.chunk == 1:
    return tree
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def stack(trees: Sequence[Any]) -> Any:
  """Trees of equal structure as one with a new leading axis."""
  return jax.tree.map(lambda *x: jnp.stack(x), *trees)
