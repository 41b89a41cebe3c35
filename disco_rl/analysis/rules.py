"""The rule to look into: the published one if there is a way to get it."""

import jax

from disco_rl import types
from disco_rl.meta_training import initial_rule
from disco_rl.networks import meta_network
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry


def disco103_or_random(
  seed: int = 0,
) -> tuple[disco.Disco, types.Params, str]:
  """Loads Disco103; draws a random rule of its sizes if it cannot be had.

  Args:
    seed: of the random rule.

  Returns:
    The rule, eta, and a sentence that says which rule it is, to be shown.

  Raises:
    WeightsError: the file is there, but damaged.
  """
  try:
    rule, params = registry.load('disco103')
  except OSError as error:
    network = meta_network.MetaNetworkConfig()
    params, _ = initial_rule.draw(jax.random.key(seed), network)
    note = f'A RANDOM rule, as Disco103 cannot be had. {error}'
    return disco.Disco(network=network), params, note
  assert isinstance(rule, disco.Disco)
  return rule, jax.device_put(params), 'Disco103, as published.'
