"""The rule's optimiser: one Adam per agent, whose updates are averaged.

eta <- eta - (1 / n) sum_i Adam_i(g_i). Agents differ by orders of magnitude in
their gradients; each one's own second moments put them on an equal footing.
"""

import optax


def meta_optimizer(
  learning_rate: float, max_gradient_norm: float
) -> optax.GradientTransformation:
  """What each agent makes of its meta-gradient.

  Args:
    learning_rate: of Adam.
    max_gradient_norm: longer gradients are shortened to it, before Adam.

  Returns:
    The transformation of an agent's gradient into its vote for eta's update.
  """
  return optax.chain(
    optax.clip_by_global_norm(max_gradient_norm), optax.adam(learning_rate)
  )
