"""A custom rule: actor-critic with lambda-returns, on Catch.

  python -m examples.own_rule

A rule is five functions: which outputs the agent's network must have, the
parameters of the rule itself, the state that it keeps for each agent, the
targets, and the loss that moves the agent towards them.
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rlax

import disco_rl
from disco_rl import types
from disco_rl.maths import masked
from disco_rl.update_rules import base
from disco_rl.update_rules import registry


# Shown as: rule
@types.record
class Targets:
  """The targets, which are constants for the agent's gradient.

  Attributes:
    value: [T, B] lambda-returns.
    advantage: [T, B] lambda-return minus value.
  """

  value: types.Array
  advantage: types.Array


@dataclasses.dataclass(frozen=True)
class LambdaActorCritic(base.UpdateRule):
  """On-policy actor-critic with a scalar value.

  Attributes:
    discount: gamma.
    lambda_: The trace parameter of the returns.
    entropy_cost: weight of the entropy bonus.
  """

  discount: float = 0.99
  lambda_: float = 0.9
  entropy_cost: float = 0.01

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """One head in addition to the policy, `v` [1]; no outputs per action."""
    del num_actions
    return types.OutputSpec(state={'v': 1}, action={})

  def init_params(self, key: types.Array) -> types.Params:
    """Returns no parameters, because the rule has none."""
    del key
    return {}

  def init_state(self, agent_params: types.Params) -> Any:
    """Returns an empty state, because the rule keeps none."""
    del agent_params
    return ()

  def targets(
    self,
    rule_params: types.Params,
    state: Any,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[Targets, Any, types.Logs]:
    """Computes lambda-returns; see `UpdateRule.targets`."""
    del rule_params, agent_params, unroll
    value = outputs['v'][..., 0]
    discount = self.discount * (1.0 - rollout.is_terminal)
    # Where a time limit ends an episode, returns bootstrap from the value.
    trace = self.lambda_ * masked.next_is_real(rollout.mask)
    returns = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)(
      rollout.reward, discount, value[1:], trace
    )
    targets = Targets(value=returns, advantage=returns - value[:-1])
    return targets, state, {'value': value[:-1]}

  def loss(
    self, taken: types.Outputs, targets: Targets, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """Policy gradient, value and entropy, [T, B]; see `UpdateRule.loss`."""
    log_policy = jax.nn.log_softmax(taken['logits'][:-1])
    action = rollout.action[:-1, :, None]
    log_taken = jnp.take_along_axis(log_policy, action, axis=-1)[..., 0]
    entropy = -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)
    value_loss = rlax.l2_loss(taken['v'][:-1, :, 0], targets.value)
    loss = -log_taken * targets.advantage + value_loss
    return loss - self.entropy_cost * entropy, {
      'value_loss': value_loss,
      'policy_entropy': entropy,
    }
    # End of: rule


registry.register('lambda_actor_critic', LambdaActorCritic)


# Shown as: train
def train(rule: base.UpdateRule, updates: int) -> np.ndarray:
  """Trains an agent; returns its mean return, every ten updates."""
  trainer = disco_rl.Trainer(
    'catch/5x5',
    rule,
    hidden_sizes=(64, 64),
    num_environments=32,
    batch_size=32,  # As many as environments: no replay, all is on-policy.
    on_policy_share=1.0,
    unroll_length=16,
    learning_rate=1e-3,
  )
  return trainer.train(updates)['return']
  # End of: train


def main() -> None:
  """Trains, and prints how the return grows."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--updates', type=int, default=400)
  flags = parser.parse_args()
  returns = train(LambdaActorCritic(), flags.updates)
  for update, mean_return in zip(range(10, flags.updates + 10, 10), returns):
    print(f'update {min(update, flags.updates)}: return {mean_return:.2f}')


if __name__ == '__main__':
  main()
