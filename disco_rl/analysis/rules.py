"""The rule to analyse: the published one if it can be loaded."""

import jax

from disco_rl import types
from disco_rl.meta_training import initial_rule
from disco_rl.networks import meta_network
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry


def disco103_or_random(seed: int = 0) -> tuple[disco.Disco, types.Params, str]:
  """Loads Disco103, or draws a random rule of its sizes if it is unavailable.

  Args:
    seed: of the random rule.

  Returns:
    The rule, its parameters (eta), and a sentence that names the rule.

  Raises:
    WeightsError: the file exists, but is damaged.
  """
  try:
    rule, params = registry.load('disco103')
  except OSError as error:
    network = meta_network.MetaNetworkConfig()
    params = initial_rule.draw(jax.random.key(seed), network)
    note = f'A RANDOM rule, as Disco103 is unavailable. {error}'
    return disco.Disco(network=network), params, note
  assert isinstance(rule, disco.Disco)
  return rule, jax.device_put(params), 'Disco103, as published.'
