"""The rule's optimiser: one Adam per agent, whose updates are averaged.

eta <- eta - (1 / n) sum_i Adam_i(g_i). Agents differ by orders of magnitude in
their gradients; each one's own second moments put them on an equal footing.
"""

import optax

from disco_rl.maths import optimizers


def meta_optimizer(
  learning_rate: float, max_gradient_norm: float, decay_steps: int = 0
) -> optax.GradientTransformation:
  """What each agent makes of its meta-gradient.

  Args:
    learning_rate: of Adam.
    max_gradient_norm: longer gradients are shortened to it, before Adam.
    decay_steps: meta-steps after which a cosine has brought the learning rate
      to zero; 0: it stays.

  Returns:
    The transformation of an agent's gradient into its vote for eta's update.
  """
  schedule = optimizers.schedule(learning_rate, decay_updates=decay_steps)
  return optax.chain(
    optax.clip_by_global_norm(max_gradient_norm), optax.adam(schedule)
  )
