"""Ablation of the predictions y and z from a rule's inputs (Fig. 4e).

How much worse agents learn with the ablated rule shows how much the rule
depends on these predictions. Agents are built and trained with it as with any
other rule.
"""

import dataclasses
from typing import Annotated

import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

EXTENTS = ('y_and_z', 'all')


@dataclasses.dataclass(frozen=True)
class Blind(disco.Disco):
  """Disco whose meta-network receives zeros for the logits of y and z.

  Attributes:
    extent: the targets that are affected. 'all': all of them. 'y_and_z': y_hat
      and z_hat; pi_hat and the state of the meta-RNN are those of the original
      rule.
  """

  extent: Annotated[str, config_lib.one_of(*EXTENTS)] = 'all'

  def targets(
    self,
    rule_params: types.Params,
    state: disco.DiscoState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[disco.DiscoTargets, disco.DiscoState, types.Logs]:
    """`Disco.targets` without the predictions y and z; see the class."""
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
    full, state, logs = super().targets(
      rule_params, state, agent_params, rollout, outputs, unroll
    )
    targets = dataclasses.replace(full, y=blind[0].y, z=blind[0].z)
    return targets, state, logs


def blind(rule: disco.Disco, extent: str = 'all') -> Blind:
  """The rule with y and z ablated from its inputs.

  Args:
    rule: a discovered rule.
    extent: 'all' or 'y_and_z'; see `Blind`.

  Returns:
    A rule with the same parameters.

  Raises:
    ValueError: the extent is unknown, or the rule has no y and z.
  """
  if not rule.network.prediction_size:
    raise ValueError(
      'This rule has no predictions y and z (rule_prediction_size=0), which an '
      'ablation hides from its inputs.'
    )
  fields = dataclasses.fields(disco.Disco)
  settings = {field.name: getattr(rule, field.name) for field in fields}
  return Blind(**settings, extent=extent)


def _hide(outputs: types.Outputs) -> types.Outputs:
  hidden = {name: jnp.zeros_like(outputs[name]) for name in ('y', 'z')}
  return {**outputs, **hidden}
