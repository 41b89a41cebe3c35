"""The interface of an estimator of the meta-gradient.

Discovery has three parts: an inner problem, which a rule trains
(`inner_problem`); an estimator of the gradient of its outer loss with respect
to the rule's parameters, eta, which calls the problem, and may take apart its
state, `inner_loop.Member`; and an outer learner, Adam (`meta_update`).

To add an estimator, write its file with two classes: its settings, an
`EstimatorConfig` whose fields become flags (see `runtime.versions`), and what
`on_device` makes of them. Then add a field to `registry.Estimators`, whose name
selects it, that name to the meaning of `MetaTrainingConfig.estimator`, a
variant to configs/ablations.py, and a row to docs/how-it-works.md. If its
objective is the reward alone, it sets `has_outer_loss` to False.
"""

import abc
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
from typing import ClassVar
from typing import NamedTuple
from typing import TypeVar

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import outer_loss

# Gradients of the outer loss with respect to the differentiable leaves of a
# learner state, and with respect to eta in the updates after that state.
Cotangents = tuple[types.PyTree, types.Params]
AnyLearning = TypeVar('AnyLearning', bound=inner_loop_lib.Learning)


class Steps(NamedTuple):
  """The environment steps of a meta-step, for one member.

  Attributes:
    per_member: The steps of the member itself, which age it.
    total: All steps, including those of discarded runs and of copies.
  """

  per_member: int
  total: int


class Estimator(abc.ABC):
  """The interface of estimators to all groups."""

  @property
  @abc.abstractmethod
  def steps(self) -> Steps:
    """The environment steps of a meta-step."""

  @property
  def agents_per_member(self) -> int:
    """The number of agents of a member; several have a leading axis."""
    return 1

  def initial_member(
    self,
    make: Callable[[types.Array], inner_loop_lib.Newborn],
    key: types.Array,
  ) -> inner_loop_lib.Newborn:
    """Makes a member from a key; `make` makes one with a single agent."""
    return make(key)

  def begin(
    self, members: inner_loop_lib.Member, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """Adds what else the estimator keeps, to initial members [n, ...]."""
    del rule_params
    return members


class DeviceEstimator(Estimator):
  """Estimates the meta-gradient of one member, in JAX-native environments."""

  def for_each_agent(
    self,
    function: Callable[
      [inner_loop_lib.DeviceMember], inner_loop_lib.DeviceMember
    ],
    member: inner_loop_lib.DeviceMember,
  ) -> inner_loop_lib.DeviceMember:
    """Applies a function of a single agent, with its environments."""
    return function(member)

  @abc.abstractmethod
  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Makes the member's N updates, and estimates the meta-gradient.

    Args:
      rule_params: eta.
      member: The member before its updates.
      environment: The environment of this member.

    Returns:
      The gradient of the outer loss with respect to eta, the member after its
      updates, and scalars to log.
    """


class HostEstimator(Estimator):
  """Estimates it from updates that `HostGroup` makes and keeps.

  The group makes the N updates and the validation rollouts, then calls
  `outer_gradient` once, and `backward` for each segment, last segment first.
  """

  @abc.abstractmethod
  def outer_gradient(
    self,
    rule_params: types.Params,
    learning: AnyLearning,
    validation: types.Rollout,
  ) -> tuple[Cotangents, AnyLearning, types.Logs]:
    """Differentiates the outer loss with respect to the last learner state.

    Args:
      rule_params: eta.
      learning: The member, or what learns of it, after its N updates.
      validation: The validation trajectories, made with the last parameters.

    Returns:
      The cotangents of that state, `learning` with the next meta-value
      function, and scalars to log.
    """

  @abc.abstractmethod
  def backward(
    self,
    rule_params: types.Params,
    cotangents: Cotangents,
    segment: inner_loop_lib.Trajectory,
  ) -> tuple[Cotangents, types.Logs]:
    """Carries the cotangents back through one segment of k updates.

    Args:
      rule_params: eta.
      cotangents: The cotangents of the state after the segment.
      segment: The segment, on the device, without the leading axis of segments.

    Returns:
      The cotangents of the state before it, and logs [k].
    """


@dataclasses.dataclass(frozen=True)
class EstimatorConfig(config_lib.Settings, abc.ABC):
  """Settings of an estimator, which make the estimator."""

  # Whether the weights of `outer_loss.OuterLossConfig` are part of its
  # objective.
  has_outer_loss: ClassVar[bool] = True

  @property
  def needs_gradients(self) -> bool:
    """Whether trajectories must contain the agent's gradients."""
    return False

  @abc.abstractmethod
  def on_device(self, problem: inner_problem.AgentProblem) -> DeviceEstimator:
    """Makes the estimator for JAX-native environments."""

  def on_host(
    self, problem: inner_problem.AgentProblem
  ) -> HostEstimator | None:
    """Makes it for environments on the host; None if there is none."""
    del problem
    return None

  def conflicts_with(
    self,
    inner_loop: inner_loop_lib.InnerLoopConfig,
    loss: outer_loss.OuterLossConfig,
  ) -> Iterator[str]:
    """Yields errors about settings that it cannot be combined with."""
    del inner_loop
    costs = [name for name, cost in vars(loss).items() if cost]
    if costs and not self.has_outer_loss:
      yield (
        f'would ignore {", ".join(costs)}: its objective is the reward of '
        'perturbed rules alone. Set '
        f'{", ".join(f"{name}=0" for name in costs)}.'
      )
