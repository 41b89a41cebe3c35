"""Discovery on Atari-57, like the paper's Disco57.

Settings that the paper does not state are inferred; docs/faithfulness.md says
which, and from what.

  disco-rl meta-train --config=disco57 --workdir=runs/disco57

128 agents cycle through the 57 games in lexicographic order. The paper's run
took 1,024 TPUv3 cores for 64 hours. Requires
`pip install 'disco-rl-discovery[atari]'`.

  disco-rl meta-train --config=disco57:tiny \
    --workdir=runs/disco57_tiny

This variant keeps the components (replay, resets of agents, 20 inner updates,
environments on the host) with sizes that two CPU cores run in minutes. The run
is too short to learn anything; it shows that the components work together.
"""

import ml_collections

from configs import meta_training


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the settings; `variant` is empty, 'large' or 'tiny'."""
  return meta_training.paper(
    128, 57, 'atari57', variant, 'atari/breakout,atari/pong'
  )
