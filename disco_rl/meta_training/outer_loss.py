"""The outer loss of discovery, and its regularizers.

The equations are in docs/how-it-works.md, "The meta-gradient".
`inner_problem.AgentProblem` calls them: `validation_loss` after the N inner
updates, or at several points, with the advantage of
`meta_value.MetaValue.estimate_and_update`; `target_regularizer` for each of
these updates; and `matching_loss` for bootstrapping.

To add a term, add its weight to `OuterLossConfig`, which makes it a setting
(see `runtime.versions`), and the term to the function that sees its inputs,
with a scalar to log; `curves` lists those that are plotted. A term of
`validation_loss` reaches bootstrapping through the last update of a grounded
target alone: either add it to `matching_loss`, too, or let
`Bootstrapping.conflicts_with` refuse its weight for other targets. Evolution
strategies have no such terms: a weight whose default is not 0 belongs in
REWARD_ALONE of configs/meta_training.py.
"""

import dataclasses

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.maths import categorical
from disco_rl.maths import masked
from disco_rl.maths import value_targets
from disco_rl.update_rules import disco


@dataclasses.dataclass(frozen=True)
class OuterLossConfig(config_lib.Settings):
  """Weights of the outer loss's terms, except for the policy gradient.

  Attributes:
    policy_entropy_cost: weight of -H(pi) on the validation trajectories.
    y_entropy_cost: weight of -H(y) on them, if agents have y and z.
    z_entropy_cost: weight of -H(z[a]) on them, if agents have y and z.
    target_kl_cost: weight of KL(pi_target || pi_hat) in each inner update;
      keeps pi_hat near the target network's policy.
    target_mean_cost: weight of the squared mean, over time, batch and the last
      axis together, of the logits of each of pi_hat, y_hat and z_hat in each
      inner update. A softmax ignores a constant, so nothing else bounds it.
      Illegal actions are ignored.
  """

  policy_entropy_cost: config_lib.Finite = 1e-2
  y_entropy_cost: config_lib.Finite = 1e-3
  z_entropy_cost: config_lib.Finite = 1e-3
  target_kl_cost: config_lib.Finite = 1e-2
  target_mean_cost: config_lib.Finite = 1e-3


def validation_loss(
  config: OuterLossConfig,
  taken: types.Outputs,
  rollout: types.Rollout,
  advantage: types.Array,
) -> tuple[types.Array, types.Logs]:
  """Computes the policy gradient loss, -log pi(a) A, and entropies.

  Args:
    config: The weights of the terms.
    taken: The outputs of the agent after N updates, by `AgentNetwork.unroll`;
      the gradient flows only through them.
    rollout: T transitions of B trajectories of this agent.
    advantage: [T, B] normalized, constant; see
      `MetaValue.estimate_and_update`.

  Returns:
    The loss [], and scalars to log.
  """
  logits = taken['logits'][:-1]
  log_policy = value_targets.taken(
    jax.nn.log_softmax(logits), rollout.action[:-1]
  )
  terms = {
    'meta_policy_loss': -log_policy * jax.lax.stop_gradient(advantage),
    'validation_policy_entropy': categorical.entropy(logits),
  }
  if 'y' in taken:
    terms['validation_y_entropy'] = categorical.entropy(taken['y'][:-1])
    terms['validation_z_entropy'] = categorical.entropy(taken['z'])
  means = masked.mean(terms, rollout.mask)
  loss = (
    means['meta_policy_loss']
    - config.policy_entropy_cost * means['validation_policy_entropy']
  )
  if 'y' in taken:
    loss -= config.y_entropy_cost * means['validation_y_entropy']
    loss -= config.z_entropy_cost * means['validation_z_entropy']
  return loss, means


def matching_loss(
  config: OuterLossConfig,
  divergence: types.Array,
  taken: types.Outputs,
  rollout: types.Rollout,
) -> tuple[types.Array, types.Logs]:
  """Computes the divergence from a target's policy, and entropies of y and z.

  The policy's entropy is not part of it, but of the target.

  Args:
    config: The weights of the terms.
    divergence: [T, B], KL(target || policy).
    taken: The outputs of the agent; see `validation_loss`.
    rollout: T transitions of B trajectories.

  Returns:
    The loss [], and scalars to log.
  """
  terms = {'matching_kl': divergence}
  if 'y' in taken:
    terms['matched_y_entropy'] = categorical.entropy(taken['y'][:-1])
    terms['matched_z_entropy'] = categorical.entropy(taken['z'])
  means = masked.mean(terms, rollout.mask)
  loss = means['matching_kl']
  if 'y' in taken:
    loss -= config.y_entropy_cost * means['matched_y_entropy']
    loss -= config.z_entropy_cost * means['matched_z_entropy']
  return loss, means


def target_regularizer(
  config: OuterLossConfig, targets: disco.DiscoTargets, rollout: types.Rollout
) -> tuple[types.Array, types.Logs]:
  """Computes the regularizers of the targets of one inner update.

  Args:
    config: The weights of the terms.
    targets: The targets of the update.
    rollout: The batch that they are for.

  Returns:
    The loss [], and scalars to log.
  """
  kl = categorical.kl_divergence(
    jax.lax.stop_gradient(targets.target_policy), targets.pi
  )
  # One mean over time, batch and the last axis of each tensor: squaring the
  # mean of every step would make a much stronger regularizer.
  legal = action_masks.find(rollout.observation)
  legal = None if legal is None else legal[:-1]
  of_targets = [action_masks.mean(targets.pi, legal, axis=-1)] + [
    jnp.mean(logits, axis=-1)
    for logits in (targets.y, targets.z)
    if logits is not None
  ]
  kl, means = masked.mean((kl, of_targets), rollout.mask)
  squared_mean = jnp.sum(jnp.square(jnp.stack(means)))
  loss = config.target_kl_cost * kl + config.target_mean_cost * squared_mean
  return loss, {'target_kl': kl, 'target_squared_mean': squared_mean}
