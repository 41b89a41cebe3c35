"""Discovery on 103 environments, with the settings of the paper's Disco103.

  disco-rl meta-train --config=disco103 \
    --workdir=runs/disco103

206 agents, two for each environment of Atari-57, ProcGen-16 and DMLab-30. The
paper's run took 2,048 TPUv3 cores for 60 hours. Requires
`pip install 'disco-rl-discovery[atari,procgen]'` and your own build of
deepmind_lab.

  disco-rl meta-train --config=disco103:tiny \
    --workdir=runs/disco103_tiny

keeps every component - Atari, ProcGen and two kinds of JAX-native environments,
replay, resets of agents, 20 inner updates - with sizes that two CPU cores can
run: three and a half minutes of compiling, then ten seconds a meta-step, and
3.3 GiB at most; on one slow core ten minutes, a minute and 4.2 GiB. The run is
too short to learn anything: it shows that everything works together.
"""

import ml_collections

from configs import meta_training


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the settings; `variant` is empty, 'large' or 'tiny'."""
  config = meta_training.paper(206, 103, 'atari57,procgen16,dmlab30')
  return meta_training.variant_of(
    config, variant, 'atari/breakout,procgen/coinrun,catch/5x5,gridworld/03'
  )
