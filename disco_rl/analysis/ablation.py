"""A rule that is kept from its agents' predictions y and z (Fig. 4e).

How much worse agents learn with it shows what those predictions are worth to
the rule. It is a rule like any other: agents are made and trained with it.
"""

import dataclasses
from typing import Annotated

import jax.numpy as jnp

from disco_rl import types
from disco_rl.runtime import config_checks
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

EXTENTS = ('y_and_z', 'all')


@dataclasses.dataclass(frozen=True)
class Blind(disco.Disco):
  """Disco, whose meta-network sees zeros for the logits of y and z.

  Attributes:
    extent: when it does. 'all': always. 'y_and_z': when it makes y_hat and
      z_hat; pi_hat is made by one that sees, and so is the meta-RNN's state.
  """

  extent: Annotated[str, config_checks.one_of(*EXTENTS)] = 'all'

  def targets(
    self,
    rule_params: types.Params,
    state: disco.DiscoState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[disco.DiscoTargets, disco.DiscoState, types.Logs]:
    """As `Disco.targets`, of predictions that are hidden; see the class."""
    blind = super().targets(
      rule_params,
      state,
      agent_params,
      rollout,
      _hide(outputs),
      lambda params: _hide(unroll(params)),
    )
    if self.extent == 'all':
      return blind
    seeing, state, logs = super().targets(
      rule_params, state, agent_params, rollout, outputs, unroll
    )
    targets = dataclasses.replace(seeing, y=blind[0].y, z=blind[0].z)
    return targets, state, logs


def blind(rule: disco.Disco, extent: str = 'all') -> Blind:
  """The same rule, kept from y and z.

  Args:
    rule: a discovered one.
    extent: 'all' or 'y_and_z'; see `Blind`.

  Returns:
    A rule for the same parameters eta.

  Raises:
    ValueError: there is no such extent.
  """
  fields = dataclasses.fields(disco.Disco)
  settings = {field.name: getattr(rule, field.name) for field in fields}
  return Blind(**settings, extent=extent)


def _hide(outputs: types.Outputs) -> types.Outputs:
  hidden = {name: jnp.zeros_like(outputs[name]) for name in ('y', 'z')}
  return {**outputs, **hidden}
