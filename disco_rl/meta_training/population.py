"""The population: groups of agents of one kind, each with a program of its own.

Agents whose environments have equal shapes form a group, whose members are
mapped over in chunks; other shapes are other groups. Every member votes for a
change of the rule; the trainer takes the mean of all votes.

Here is what groups share: device_group.py and host_group.py are the two kinds.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from disco_rl import types
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import sharding

# Updates of eta, for each device summed over its members; the members; values
# [n] to log.
MetaUpdates = tuple[types.Params, inner_loop_lib.Member, types.Logs]


@dataclasses.dataclass(frozen=True)
class GroupConfig:
  """What the members of a group share.

  Attributes:
    names: of the members' environments, one each.
    inner_loop: how they live.
    estimator: of the meta-gradient.
    optimizer: of eta, one state per member.
    chunk_size: members that a device computes at a time, at most.
    mesh: devices that the members are spread over.

  Raises:
    ValueError: they cannot be spread evenly.
  """

  names: tuple[str, ...]
  inner_loop: inner_loop_lib.InnerLoop
  estimator: inner_loop_lib.Estimator
  optimizer: optax.GradientTransformation
  chunk_size: int
  mesh: jax.sharding.Mesh = dataclasses.field(
    default_factory=sharding.make_mesh
  )

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
    return distributed.own_part(tree, self.mesh, sharding.SPLIT)

  def join_parts(self, tree: Any) -> Any:
    """Trees [own, ...] of all processes -> [n, ...], as programs take them."""
    if not distributed.is_distributed():
      return self.split(tree)
    return distributed.from_parts(tree, self.mesh, sharding.SPLIT)


class Group(Protocol):
  """n agents with environments of equal shapes."""

  config: GroupConfig

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    ...

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """Newborn members, leading axis n, from PRNG keys [n]."""
    ...

  def resume(self, members: inner_loop_lib.Member) -> inner_loop_lib.Member:
    """Takes up members from a checkpoint."""
    ...

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> MetaUpdates:
    """Lives N updates, and votes for a change of eta.

    The members that are passed in are used up: their buffers are donated.
    """
    ...

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, over: np.ndarray
  ) -> inner_loop_lib.Member:
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


def stack(trees: Sequence[Any]) -> Any:
  """Trees of equal structure as one with a new leading axis."""
  return jax.tree.map(lambda *x: jnp.stack(x), *trees)
