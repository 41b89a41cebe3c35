"""A small meta-network, its weights, and small agents."""

from collections.abc import Mapping
import dataclasses
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.api import agent_files
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.runtime import files
from disco_rl.runtime import npz
from disco_rl.update_rules import weights

# The meta-network of the golden files.
META_NETWORK = meta_network.MetaNetworkConfig(
  prediction_size=10,
  prediction_embedding=(6, 1),
  policy_channels=(7, 2),
  policy_target_channels=(5,),
  lstm_size=12,
  meta_rnn_input_size=4,
  meta_rnn_size=8,
)


# The settings of agents that learn in moments.
AGENT: Mapping[str, Any] = {
  'unroll_length': 4,
  'batch_size': 8,
  'num_environments': 2,
  'replay_capacity': 16,
  'hidden_sizes': (8,),
}


# The description in an agent's file.
DESCRIPTION = agent_files.Description(
  environment='catch',
  preprocessing={},
  rule='actor_critic',
  rule_settings={},
  seed=1,
  settings={},
  state_outputs={},
  action_outputs={},
)


# The array of a rule's file that describes this meta-network.
NOTE = {
  npz.NOTE: npz.note_array(
    {
      'version': 1,
      'network': dataclasses.asdict(META_NETWORK),
      'settings': {},
    }
  )
}


def arrays(
  config: meta_network.MetaNetworkConfig = META_NETWORK,
) -> dict[str, Any]:
  """Draws weights of a meta-network, {'module/name': array}."""
  rng = np.random.default_rng(0)
  return {
    key: rng.normal(size=shape).astype(np.float32)
    for key, shape in meta_network.parameter_shapes(config).items()
  }


def save(path: files.PathLike, flat: Mapping[str, Any]) -> None:
  """Writes weights of the small meta-network, {'module/name': array}."""
  weights.save(path, nest(flat), META_NETWORK)


def nest(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Converts {'module/name': array} to {'module': {'name': array}}."""
  nested: dict[str, dict[str, Any]] = {}
  for key, array in flat.items():
    module, _, name = key.rpartition('/')
    nested.setdefault(module, {})[name] = array
  return nested


def torso(config: torsos.TorsoConfig, dtype: Any = jnp.float32) -> Any:
  """Makes a torso, as compiled functions init and apply."""
  init, apply = hk.without_apply_rng(
    hk.transform(lambda x: torsos.TorsoModule(config)(x, dtype))
  )
  return hk.Transformed(jax.jit(init), jax.jit(apply))


def network(
  spec: types.EnvironmentSpec,
  output_spec: types.OutputSpec,
  hidden_sizes: tuple[int, ...] = (8,),
  **settings: Any,
) -> agent_network.AgentNetwork:
  """Makes an agent's network with dense layers and other settings."""
  torso = torsos.TorsoConfig(hidden_sizes=hidden_sizes)
  config = agent_network.AgentNetworkConfig(torso, **settings)
  return agent_network.make(spec, output_spec, config)
