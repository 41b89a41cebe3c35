"""The population: groups of agents of one kind, each with its own programs.

Agents whose environments have equal shapes form a group, whose members are
mapped over in chunks. device_group.py and host_group.py are the two kinds of
groups.
"""

import abc
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools

import jax
import numpy as np
import optax

from disco_rl import types
from disco_rl.agent import cohort as cohort_lib
from disco_rl.environments import base
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import resets
from disco_rl.meta_training import variation as variation_lib
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import sharding


@dataclasses.dataclass(frozen=True)
class GroupConfig:
  """Settings that the members of a group share.

  Attributes:
    names: The names of the members' environments; padding comes last.
    numbers: The members' numbers in the whole population.
    inner_loop: The inner loop of the members.
    optimizer: The transformation of each member's meta-gradient, with a state
      for each; the first of `meta_update.meta_optimizers`.
    chunk_size: The maximal number of members that a device computes at a time.
    mesh: The devices that the members are divided among.
    variation: The differences between members.
    num_padding: The number of members that only pad the group so that it can be
      divided; their updates of eta do not count.

  Raises:
    ValueError: The members cannot be divided equally.
  """

  names: tuple[str, ...]
  numbers: tuple[int, ...]
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
    """n, the number of members, including padding."""
    return len(self.names)

  @property
  def num_counted(self) -> int:
    """The number of members whose updates count."""
    return self.num_members - self.num_padding

  @property
  def counts(self) -> np.ndarray:
    """Whether each member counts, [n] bool; False for padding."""
    return np.arange(self.num_members) < self.num_counted

  @property
  def local_members(self) -> range:
    """The members whose environments on the host this process steps."""
    rows = self.mesh.devices[:, 0]
    shard = self.num_members // len(rows)
    own = [
      i for i, x in enumerate(rows) if x.process_index == jax.process_index()
    ]
    if not own:
      return range(0)
    return range(own[0] * shard, (own[-1] + 1) * shard)

  @property
  def chunk(self) -> int:
    """The number of members computed at a time: the largest allowed divisor."""
    shard = self.num_members // self.mesh.shape[sharding.AGENTS]
    sizes = range(1, min(self.chunk_size, shard) + 1)
    return max(size for size in sizes if shard % size == 0)

  def split(self, tree: types.PyTree) -> types.PyTree:
    """Places trees [n, ...] as programs expect them."""
    return sharding.to_devices(tree, self.mesh, sharding.SPLIT)

  def shapes(self, tree: types.PyTree) -> types.PyTree:
    """Returns shapes of trees [n, ...] placed by `split`."""
    return sharding.shapes(tree, self.mesh, sharding.SPLIT)

  def local_part(self, tree: types.PyTree) -> types.PyTree:
    """Returns the part of this process's members, [n, ...] -> [own, ...]."""
    return distributed.local_part(tree, self.mesh, sharding.SPLIT)

  def gather_parts(self, tree: types.PyTree) -> types.PyTree:
    """Joins trees of all processes, [own, ...] -> [n, ...], like `split`."""
    if not distributed.is_distributed():
      return self.split(tree)
    return distributed.from_parts(tree, self.mesh, sharding.SPLIT)

  def gather(self, tree: types.PyTree) -> types.PyTree:
    """Joins trees [own, ...], which may be empty, in every process."""
    return distributed.gather(tree, self.local_members, self.num_members)

  @property
  def micro_batches(self) -> list[np.ndarray]:
    """The members computed at the same time on the host, as many per device."""
    rows = self.mesh.shape[sharding.AGENTS]
    by_device = np.arange(self.num_members).reshape(rows, -1, self.chunk)
    return [members.reshape(-1) for members in np.moveaxis(by_device, 1, 0)]

  @property
  def is_in_all_processes(self) -> bool:
    """Whether every process has members of the group."""
    return distributed.has_all_processes(self.mesh)


# Programs and the shapes of their arguments, by name.
Calls = Mapping[str, compilation.Call]


class Group(abc.ABC):
  """n agents with environments of equal shapes.

  Attributes:
    config: The settings of the group.
    estimator: Computes the meta-gradient.
    cohort: The members' environments and replay on the host.
    programs: The programs of the group; each device computes its own members.
  """

  def __init__(
    self,
    config: GroupConfig,
    estimator: estimator_lib.Estimator,
    empty_replay: Callable[[], types.PyTree],
    environments: types.PyTree = None,
  ):
    """Compiles nothing yet.

    Args:
      config: The settings of the group.
      estimator: Computes the meta-gradient.
      empty_replay: Makes the replay of an initial agent; None if replay is not
        on the device.
      environments: A tree [n, ...] of environments, if they are JAX-native.
    """
    self.config = config
    self.cohort = cohort_lib.Cohort(config.inner_loop.agent)
    self.estimator = estimator
    self.programs = sharding.Programs(config.mesh)
    self._environments = environments
    rule, members = sharding.REPLICATED, sharding.SPLIT
    self._initial = self.programs.make(
      jax.vmap(
        functools.partial(
          initial_member, estimator, config.inner_loop, config.variation
        )
      ),
      (members, members),
      runs_often=False,
    )
    self._complete = self.programs.make(
      lambda rule_params, initial: estimator.begin(
        resets.complete(empty_replay, config.optimizer, rule_params, initial),
        rule_params,
      ),
      (rule, members),
      runs_often=False,
    )

  @property
  def steps(self) -> estimator_lib.Steps:
    """The environment steps of one member in a meta-step."""
    return self.estimator.steps

  @property
  def fill_steps(self) -> int:
    """The environment steps by which a new member fills its replay."""
    return self.config.inner_loop.fill_steps

  @property
  def micro_batch_size(self) -> int:
    """The number of members that a program computes, on all devices."""
    return self.config.num_members

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """Makes initial members, with a leading axis n, from PRNG keys [n]."""
    initial = self._initial(self.config.split(keys), self._environments)
    return self._complete(rule_params, initial)

  def named_calls(self, rule_params: types.Params) -> Calls:
    """Returns all programs and the shapes of their arguments, longest first.

    They can be compiled in parallel, before the group is used.
    """
    n = self.micro_batch_size
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
    """Returns the programs of `step` and `reset_expired`, by name."""

  def resume(
    self,
    members: inner_loop_lib.Member,
    meta_step: int,
    environments: types.PyTree | None = None,
  ) -> inner_loop_lib.Member:
    """Takes members from a checkpoint; inverse of `to_checkpoint`.

    Without the result of `Cohort.save_episodes`, environments on the host begin
    new episodes.
    """
    del meta_step, environments
    return self.config.split(members)

  def to_checkpoint(
    self, members: inner_loop_lib.Member
  ) -> inner_loop_lib.Member:
    """Converts members for a checkpoint, with a leading axis n.

    Each process writes its part of global arrays, which must be in all of them;
    the first one writes NumPy arrays.
    """
    if self.config.is_in_all_processes:
      return members
    return self.fetch(members)

  def fetch(self, tree: types.PyTree) -> types.PyTree:
    """Fetches what `step` returns of each member, [n, ...].

    Every process gets the whole NumPy arrays; all must call this.
    """
    if self.config.is_in_all_processes:
      return distributed.fetch(tree)
    return self.config.gather(self.config.local_part(tree))

  def restore_replays(self, members: inner_loop_lib.Member) -> None:
    """Restores replay outside the members, as of their checkpoint.

    Raises:
      row_log.RowLogError: A file is missing or damaged.
    """
    del members

  @abc.abstractmethod
  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> meta_update.MetaUpdates:
    """Runs inner loop, validation, meta-gradient and update of each member.

    Args:
      rule_params: eta.
      members: The members, with a leading axis n; donated.

    Returns:
      The `meta_update.MetaUpdates` of the group: the sum of updates, None if no
      member is in this process; the members; and logs for `fetch`.
    """

  @abc.abstractmethod
  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, expired: np.ndarray
  ) -> inner_loop_lib.Member:
    """Resets the members whose lifetime has expired.

    Parameters, optimizer, rule state and meta-value function are new, replay is
    empty, and all episodes begin again; the moments of eta's optimizer remain.

    Args:
      keys: [n] PRNG keys.
      members: The members, with a leading axis n; donated.
      expired: [n] bool, the members to reset.

    Returns:
      The members.
    """


def initial_member(
  estimator: estimator_lib.Estimator,
  inner_loop: inner_loop_lib.InnerLoop,
  variation: variation_lib.VariationConfig,
  key: types.Array,
  environment: base.JaxEnvironment | None,
) -> inner_loop_lib.Newborn:
  """Makes what is new of a member, for as many agents as it needs."""
  return estimator.initial_member(
    lambda key: resets.initial_member(inner_loop, key, environment, variation),
    key,
  )
