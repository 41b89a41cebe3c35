"""What discovery holds on a device: estimated, against what XLA reports."""

import footprints
import jax
import pytest
import small

from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import meta_value as meta_value_lib
from disco_rl.meta_training import population
from disco_rl.networks import meta_network
from disco_rl.runtime import memory
from disco_rl.update_rules import disco

UPDATES = 4
SETTINGS = {
  'inner_updates': UPDATES,
  'validation_trajectories': 2,
  'unroll_length': 3,
  'batch_size': 4,
  'num_environments': 2,
  'on_policy_share': 0.5,
  'replay_capacity': 8,
  'channels': (4, 8),
  'hidden_sizes': (32,),
  'action_model_lstm': 8,
  'action_model_head': 8,
  'num_bins': 11,
  'rule_prediction_size': 8,
  'meta_value_hidden_sizes': (8,),
}


def make_group(torso: str, core: int) -> host_group.HostGroup:
  settings = {
    **quickstart.get_config().to_dict(),
    **SETTINGS,
    'torso': torso,
    'core_lstm': core,
  }
  config = meta_trainer.config_of(settings)
  spec = types.EnvironmentSpec(footprints.OBSERVATIONS[torso], num_actions=3)
  rule = disco.Disco(network=small.META_NETWORK)
  inner_loop = inner_loop_lib.InnerLoop(
    config.inner_loop,
    agent_lib.make(config.agent, spec, rule),
    meta_value_lib.MetaValue(config.meta_value, spec),
  )
  return host_group.HostGroup(
    population.GroupConfig(
      names=('game',),
      inner_loop=inner_loop,
      optimizer=meta_update.per_agent_adam(0.1, 1.0),
      chunk_size=1,
    ),
    lambda _: [],  # No environment is needed.
    meta_gradient.MetaGradient(inner_loop),
  )


@pytest.mark.slow
@pytest.mark.parametrize('core', [0, 8])
@pytest.mark.parametrize('torso', list(footprints.OBSERVATIONS))
def test_the_estimate_is_what_xla_reports(torso: str, core: int) -> None:
  group = make_group(torso, core)
  rule_params = jax.eval_shape(
    lambda: meta_network.init(jax.random.key(0), small.META_NETWORK)
  )
  loads = population.needs([group], rule_params).loads
  running = {load.name: load for load in loads}
  _, (_, members, *_) = running['learn'].call
  learner = memory.device_bytes(members.agent.learner)
  for name in ('learn', 'backward'):
    reported = footprints.reported_bytes(running[name].call)
    held = running[name].measurement()()
    assert held.temporaries + held.states == pytest.approx(reported, rel=0.2)
    assert running[name].bound().total >= held.total
    # Of all updates, at least the states are kept.
    assert held.additional > (UPDATES - 1) * learner
