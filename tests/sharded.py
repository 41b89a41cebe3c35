"""A small population for eight devices.

As a program it prints which collectives its programs hold, one line for the
step of the agents and one for the mean of their votes.
"""

import collections
import json
import re

import jax
import jax.numpy as jnp

from configs import quickstart
from disco_rl import sharding
from disco_rl.meta_training import building
from launch import to_records

SETTINGS = {
  'agents': 8,
  'budgets': (400,),
  'chunk_size': 2,
  'inner_updates': 2,
  'validation_trajectories': 2,
  'unroll_length': 6,
  'batch_size': 4,
  'replay_ratio': 2.0,
  'on_policy_share': 0.5,
  'replay_capacity': 8,
  'hidden_sizes': (8,),
  'action_model_lstm': 8,
  'action_model_head': 8,
  'num_bins': 11,
  'meta_value_hidden_sizes': (8,),
  'rule_prediction_size': 8,
  'rule_lstm_size': 8,
  'rule_meta_rnn_size': 4,
  'held_out_environments': '',
  'checkpoint_every': 3,
}
_COLLECTIVES = re.compile(
  r' (all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+)'
  r'(?:-start)?\('
)


def collectives(program: jax.stages.Compiled) -> dict[str, int]:
  """How many of each kind a program holds."""
  return collections.Counter(_COLLECTIVES.findall(program.as_text()))


def main() -> None:
  settings = {**quickstart.get_config().to_dict(), **SETTINGS}
  config = to_records.meta_training(settings)
  rule, params = building.make_rule(config)
  (group,) = building.make_groups(config, rule)
  mesh = sharding.all_devices()
  params = sharding.put(params, mesh, sharding.REPLICATED)
  members = group.init(jax.random.split(jax.random.key(0), 8), params)
  votes = jax.tree.map(lambda x: jnp.stack(8 * [x]), params)
  move = jax.jit(lambda votes: sharding.total(votes, mesh))
  for program in (
    group.compile(params, members),
    move.lower(sharding.put(votes, mesh, sharding.SPLIT)).compile(),
  ):
    print(json.dumps(collectives(program)))


if __name__ == '__main__':
  main()
