"""Hand-made scenes: one trajectory, and an agent with values only.

For other predictions, replace the logits in the scene's `outputs`.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import value_targets
from disco_rl.update_rules import disco

# Keeps logits finite.
_EPSILON = 1e-9


def scene(
  rule: disco.Disco,
  actions: Sequence[int],
  rewards: Sequence[float],
  ends: Sequence[bool],
  values: Sequence[float],
) -> scenes.Scene:
  """Makes one trajectory of an agent in its initial state.

  The policy, the behavior policy and all predictions except q are uniform,
  including those of the target network.

  Args:
    rule: The rule, which defines the heads.
    actions: A_t, T integers below A.
    rewards: R_t, T numbers, received after a_t.
    ends: T flags, whether the episode ended after a_t.
    values: Expected returns q of the A actions, in all states; zeros if the
      rule has no q.

  Returns:
    The scene, with B = 1. Its observations are placeholders, as rules do not
    use them.

  Raises:
    ValueError: The lengths differ, there are no steps, an action is out of
      range, or a value is too large for the rule's q, or not zero although the
      rule has no q.
  """
  num_actions = len(values)
  length = _check(actions, rewards, ends, num_actions)
  spec = rule.output_spec(num_actions)
  zeros = lambda *shape: jnp.zeros((length + 1, 1, *shape))
  outputs = {
    'logits': zeros(num_actions),
    **{name: zeros(width) for name, width in spec.state.items()},
    **{name: zeros(num_actions, width) for name, width in spec.action.items()},
  }
  if 'q' in spec.action:
    q = _categorical(rule, values)
    outputs['q'] = jnp.broadcast_to(q, (length + 1, 1, *q.shape))
  elif any(values):
    raise ValueError(
      f'values are {[*values]}, but this rule has no q (rule_has_q=False): '
      'give zeros, one for each action.'
    )
  rollout = types.Rollout(
    observation=zeros(),
    # Updates do not use the action at T.
    action=jnp.asarray([*actions, 0], jnp.int32)[:, None],
    logits=zeros(num_actions),
    reward=jnp.asarray(rewards, jnp.float32)[:, None],
    is_terminal=jnp.asarray(ends, bool)[:, None],
    mask=jnp.ones((length, 1), bool),
  )
  state = rule.init_state(scenes.as_params(outputs))
  return scenes.Scene(rollout, outputs, state)


def _check(
  actions: Sequence[int],
  rewards: Sequence[float],
  ends: Sequence[bool],
  num_actions: int,
) -> int:
  """Checks the arguments of `scene`; returns the number of steps."""
  lengths = {len(actions), len(rewards), len(ends)}
  if len(lengths) > 1 or not len(actions):
    raise ValueError(
      f'actions, rewards and ends have {len(actions)}, {len(rewards)} and '
      f'{len(ends)} entries; give one of each for every step, and at least one '
      'step.'
    )
  for action in actions:
    if not 0 <= action < num_actions:
      raise ValueError(
        f'actions has {action}, but values has {num_actions} entries, one for '
        f'each action: actions are numbers from 0 to {num_actions - 1}.'
      )
  return len(actions)


def _categorical(rule: disco.Disco, values: Sequence[float]) -> types.Array:
  """Computes logits [A, N] whose expectations are the values."""
  transformed = value_targets.TRANSFORM.apply(jnp.asarray(values, jnp.float32))
  bound = rule.max_abs_value
  largest = jnp.max(jnp.abs(transformed))
  if largest > bound:
    raise ValueError(
      f'values reach {max(values, key=abs)}, but the largest q of this rule is '
      f'{value_targets.TRANSFORM.apply_inv(bound):.4g}.'
    )
  two_hot = rlax.transform_to_2hot(transformed, -bound, bound, rule.num_bins)
  return jnp.log(two_hot + _EPSILON)
