"""Discovery on 103 environments, like the paper's Disco103.

Settings that the paper does not state are inferred, as in disco57.py.

  disco-rl meta-train --config=disco103 \
    --workdir=runs/disco103

206 agents, two for each environment of Atari-57, ProcGen-16 and DMLab-30: 300M
frames each, and 75M steps in ProcGen, for which four steps of a budget are one
action (see docs/faithfulness.md). The length is that of Disco57, because the
paper states none. The paper's run took 2,048 TPUv3 cores for 60 hours. Requires
`pip install 'disco-rl-discovery[atari,procgen]'` and your own build of
deepmind_lab.

  disco-rl meta-train --config=disco103:tiny \
    --workdir=runs/disco103_tiny

This variant keeps the components (Atari, ProcGen and two kinds of JAX-native
environments, replay, resets of agents, 20 inner updates) with sizes that two
CPU cores can run. It takes three and a half minutes of compiling, then ten
seconds per meta-step, and at most 3.3 GiB; on one slow core it takes ten
minutes, a minute per meta-step and 4.2 GiB. The run is too short to learn
anything; it shows that the components work together.
"""

import ml_collections

from configs import meta_training


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the settings; `variant` is empty, 'large' or 'tiny'."""
  return meta_training.paper(
    206,
    103,
    'atari57,procgen16,dmlab30',
    variant,
    'atari/breakout,procgen/coinrun,catch/5x5,gridworld/03',
  )
