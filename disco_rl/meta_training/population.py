"""The population: groups of agents of one kind, each with programs of its own.

Agents whose environments have equal shapes form a group, whose members are
mapped over in chunks. device_group.py and host_group.py are the two kinds of
groups.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import pathlib

import jax
import numpy as np
import optax

from disco_rl import planning
from disco_rl import types
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import resets
from disco_rl.meta_training import variation as variation_lib
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import sharding


@dataclasses.dataclass(frozen=True)
class GroupConfig:
  """Settings that the members of a group have in common.

  Attributes:
    names: Names of the members' environments, one each; padding comes last.
    inner_loop: N updates and validation.
    optimizer: The optimizer of eta, with a state for each member; see
      `meta_update.per_agent_adam`.
    chunk_size: members that a device computes at a time, at most.
    mesh: devices that the members are divided among.
    variation: how the members differ.
    num_padding: members whose updates of eta do not count: they pad the group
      up, so that it can be divided.

  Raises:
    ValueError: they cannot be divided equally.
  """

  names: tuple[str, ...]
  inner_loop: inner_loop_lib.InnerLoop
  optimizer: optax.GradientTransformation
  chunk_size: int
  mesh: jax.sharding.Mesh = dataclasses.field(
    default_factory=sharding.make_mesh
  )
  variation: variation_lib.VariationConfig = variation_lib.VariationConfig()
  num_padding: int = 0

  def __post_init__(self) -> None:
    sharding.check(
      self.num_members, self.mesh, f'with environments like {self.names[0]}'
    )
    inner_loop = self.inner_loop
    for name, size in (
      ('batch_size', inner_loop.agent.config.batch_size),
      ('validation_trajectories', inner_loop.config.validation_trajectories),
    ):
      sharding.check_batch(size, self.mesh, name)

  @property
  def num_members(self) -> int:
    """The n of all axes."""
    return len(self.names)

  @property
  def num_agents(self) -> int:
    """Members whose updates count."""
    return self.num_members - self.num_padding

  @property
  def counts(self) -> np.ndarray:
    """[n] bool, false for padding."""
    return np.arange(self.num_members) < self.num_agents

  @property
  def own_members(self) -> range:
    """The members whose environments on the host this process steps."""
    rows = self.mesh.devices[:, 0]
    shard = self.num_members // len(rows)
    own = [
      i for i, x in enumerate(rows) if x.process_index == jax.process_index()
    ]
    return range(own[0] * shard, (own[-1] + 1) * shard)

  @property
  def chunk(self) -> int:
    """Members computed at a time: the largest divisor that is allowed."""
    shard = self.num_members // self.mesh.shape[sharding.AGENTS]
    sizes = range(1, min(self.chunk_size, shard) + 1)
    return max(size for size in sizes if shard % size == 0)

  def alone_on(
    self, mesh: jax.sharding.Mesh, num_members: int
  ) -> 'GroupConfig':
    """The config of some of the members; see `Group.alone_on`."""
    return dataclasses.replace(
      self, names=self.names[:num_members], mesh=mesh, num_padding=0
    )

  def split(self, tree: types.PyTree) -> types.PyTree:
    """Places trees [n, ...] as programs expect them."""
    return sharding.put(tree, self.mesh, sharding.SPLIT)

  def shapes(self, tree: types.PyTree) -> types.PyTree:
    """Shapes of trees [n, ...] that `split` has placed."""
    return sharding.shapes(tree, self.mesh, sharding.SPLIT)

  def own_part(self, tree: types.PyTree) -> types.PyTree:
    """Trees [n, ...] -> [own, ...], of this process's members."""
    return distributed.own_part(tree, self.mesh, sharding.SPLIT)

  def join_parts(self, tree: types.PyTree) -> types.PyTree:
    """Trees [own, ...] of all processes -> [n, ...], placed as by `split`."""
    if not distributed.is_distributed():
      return self.split(tree)
    return distributed.from_parts(tree, self.mesh, sharding.SPLIT)


# Programs and the shapes of their arguments, by name.
Calls = Mapping[str, compilation.Call]


class Group(abc.ABC):
  """n agents with environments of equal shapes.

  Attributes:
    config: common to the members.
    programs: compiled for the group; each device computes its own members.
    is_on_host: whether its environments are; members then are computed in
      micro-batches.
  """

  is_on_host: bool

  def __init__(
    self,
    config: GroupConfig,
    empty_replay: Callable[[], types.PyTree],
    environments: types.PyTree = None,
  ):
    """Compiles nothing yet.

    Args:
      config: common to the members.
      empty_replay: Makes the replay of an initial agent; None where replay is
        not on the device.
      environments: a tree [n, ...], if they are JAX-native.
    """
    self.config = config
    self.programs = sharding.Programs(config.mesh)
    self._environments = environments
    rule, members = sharding.REPLICATED, sharding.SPLIT
    self._initial = self.programs.make(
      jax.vmap(
        functools.partial(
          resets.initial_member,
          config.inner_loop,
          variation=config.variation,
        )
      ),
      (members, members),
      runs_often=False,
    )
    self._complete = self.programs.make(
      functools.partial(resets.complete, empty_replay, config.optimizer),
      (rule, members),
      runs_often=False,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self.programs.compile_seconds

  @property
  @abc.abstractmethod
  def steps(self) -> inner_loop_lib.Steps:
    """Environment steps of one member in a meta-step."""

  @property
  def members_at_once(self) -> int:
    """Members that a program computes, on all devices."""
    return self.config.num_members

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """Initial members, leading axis n, from PRNG keys [n]."""
    initial = self._initial(self.config.split(keys), self._environments)
    return self._complete(rule_params, initial)

  def calls(self, rule_params: types.Params) -> list[compilation.Call]:
    """All programs with the shapes of their arguments; longest first.

    They can be compiled in parallel, before the group is used.

    Args:
      rule_params: eta.

    Returns:
      The programs.
    """
    return list(self.named_calls(rule_params).values())

  def named_calls(self, rule_params: types.Params) -> Calls:
    """The same by name."""
    n = self.members_at_once
    keys = self.config.shapes(
      jax.eval_shape(lambda: jax.random.split(jax.random.key(0), n))
    )
    start = (keys, self._environments)
    initial = self.config.shapes(self._initial.shapes(*start))
    members = self.config.shapes(self._complete.shapes(rule_params, initial))
    return {
      **self.step_calls(rule_params, members),
      'initial': (self._initial, start),
      'complete': (self._complete, (rule_params, initial)),
    }

  @abc.abstractmethod
  def step_calls(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> Calls:
    """Of `named_calls`, those of `step` and `reset_expired`.

    Args:
      rule_params: eta.
      members: shapes.

    Returns:
      The programs.
    """

  @abc.abstractmethod
  def additional_bytes(self, calls: Calls) -> dict[str, int]:
    """What a device holds of the group, besides a program and its arguments.

    Args:
      calls: The programs, as of `named_calls`.

    Returns:
      Bytes, by the names of programs; 0 for those that are left out.
    """

  @abc.abstractmethod
  def waiting_bytes(self, calls: Calls) -> int:
    """What a device holds from one meta-step to the next."""

  @abc.abstractmethod
  def off_device(self, calls: Calls, checkpoints: int) -> tuple[int, int]:
    """Bytes of this process's memory, and of the run's folder."""

  @abc.abstractmethod
  def schedule(self) -> dict[str, tuple[int, int, int]]:
    """`times`, `acting` and `waiting` of each program of a meta-step.

    See `planning.Load`.
    """

  @abc.abstractmethod
  def alone_on(self, mesh: jax.sharding.Mesh, num_members: int) -> 'Group':
    """The group as one row of devices sees it, to be compiled, not run.

    Args:
      mesh: one row of devices, of any platform.
      num_members: The number of members in a row.

    Returns:
      A group of so many members for these devices.
    """

  def resume(
    self,
    members: inner_loop_lib.Member,
    meta_step: int,
    environments: types.PyTree | None = None,
  ) -> inner_loop_lib.Member:
    """Takes members from a checkpoint; inverse of `to_checkpoint`.

    Args:
      members: The members from the checkpoint.
      meta_step: after which it was written.
      environments: what `save_environments` returned; None: those on the host
        begin new episodes.
    """
    del meta_step, environments
    return members

  def save_environments(self) -> types.PyTree | None:
    """The state of environments on the host, if they can be saved."""
    return None

  def to_checkpoint(
    self, members: inner_loop_lib.Member
  ) -> inner_loop_lib.Member:
    """The members as a checkpoint holds them, leading axis n."""
    return members

  def begin_episodes(self) -> None:  # noqa: B027
    """Resets environments on the host: faults in them show before a run."""

  def open_replays(self, directory: pathlib.Path) -> None:
    """Prepares a directory for replay that is not part of the members."""
    del directory

  def save_replays(self, keep: int) -> None:
    """Saves such replay, before a checkpoint of the members.

    Args:
      keep: Number of checkpoints to keep, without the one being written.
    """
    del keep

  def restore_replays(self, members: inner_loop_lib.Member) -> None:
    """Restores such replay.

    Args:
      members: The members from the checkpoint.

    Raises:
      row_log.RowLogError: a file is missing or damaged.
    """
    del members

  @abc.abstractmethod
  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> meta_update.MetaUpdates:
    """Inner loop, validation, meta-gradient and update of each member.

    Args:
      rule_params: eta.
      members: leading axis n; donated.

    Returns:
      See `meta_update.MetaUpdates`.
    """

  @abc.abstractmethod
  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, expired: np.ndarray
  ) -> inner_loop_lib.Member:
    """Resets the members whose lifetime has expired.

    Parameters, optimizer, rule state, meta-value function, replay and
    environments are new; the moments of eta's optimizer remain.

    Args:
      keys: [n] PRNG keys.
      members: leading axis n; donated.
      expired: [n] bool.

    Returns:
      The members.
    """


def needs(
  groups: Sequence[Group],
  rule_params: types.Params,
  keep_checkpoints: int = 1,
) -> planning.Needs:
  """What a population needs, by the shapes of its arrays.

  Args:
    groups: The population.
    rule_params: eta.
    keep_checkpoints: Number of checkpoints that remain.
  """
  calls = [group.named_calls(rule_params) for group in groups]
  waiting = [group.waiting_bytes(own) for group, own in zip(groups, calls)]
  loads: list[planning.Load] = []
  host = disk = 0
  for group, own, of_group in zip(groups, calls, waiting):
    loads += _loads(group, own, rule_params, sum(waiting) - of_group)
    bytes_off_device = group.off_device(own, keep_checkpoints + 1)
    host, disk = host + bytes_off_device[0], disk + bytes_off_device[1]
  return planning.Needs(
    'The population',
    loads,
    host,
    disk,
    'Agents with host environments, and their replay, are kept in host memory: '
    'set replay_on_disk=True, or lower replay_capacity or agents.',
  )


def _loads(
  group: Group, calls: Calls, rule_params: types.Params, others: int
) -> Iterator[planning.Load]:
  """Yields the programs of a group; a device holds `others` of other groups."""
  config, inner_loop = group.config, group.config.inner_loop
  size = inner_loop.agent.config.network.torso.chunk_size
  remedies = {
    'lower chunk_size': config.chunk > 1,
    'lower agents or replay_capacity': not group.is_on_host,
    'set torso_chunk_size=-1': not 0 < size <= 32,
    'raise save_every': inner_loop.config.save_every == 1,
    'set offload=True': not inner_loop.config.offload,
    'lower batch_size': True,
    'start from a :tiny config': True,
  }
  mesh = planning.row_of(config.mesh)

  @functools.cache
  def alone() -> Calls:
    if mesh == config.mesh:
      return calls
    rule = sharding.shapes(rule_params, mesh, sharding.REPLICATED)
    members = config.num_members // config.mesh.shape[sharding.AGENTS]
    return group.alone_on(mesh, members).named_calls(rule)

  additional, schedule = group.additional_bytes(calls), group.schedule()
  for name, call in calls.items():
    yield planning.Load(
      name,
      call,
      lambda name=name: alone()[name],  # type: ignore[misc]
      f'{config.chunk} at a time of the agents like that on {config.names[0]}',
      [text for text, helps in remedies.items() if helps],
      others + additional.get(name, 0),
      *schedule.get(name, ()),
    )
