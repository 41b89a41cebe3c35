"""What discovery holds on a device: estimated, against what XLA reports."""

import discovering
import footprints
import jax
import pytest
import small

from disco_rl import types
from disco_rl.meta_training import footprint
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.networks import meta_network
from disco_rl.runtime import memory
from disco_rl.update_rules import disco

UPDATES = 4


def make_group(torso: str, core: int) -> host_group.HostGroup:
  config = discovering.config_of(
    inner_updates=UPDATES,
    unroll_length=3,
    torso=torso,
    core_lstm=core,
    channels=(4, 8),
    hidden_sizes=(32,),
    agents=1,
  )
  group = discovering.group_config(
    config,
    disco.Disco(network=small.META_NETWORK),
    types.EnvironmentSpec(footprints.OBSERVATIONS[torso], num_actions=3),
  )
  return host_group.HostGroup(
    group,
    lambda _: [],  # No environment is needed.
    meta_gradient.MetaGradient(inner_problem.AgentProblem(group.inner_loop)),
  )


@pytest.mark.slow
@pytest.mark.parametrize('core', [0, 8])
@pytest.mark.parametrize('torso', list(footprints.OBSERVATIONS))
def test_the_estimate_is_what_xla_reports(torso: str, core: int) -> None:
  group = make_group(torso, core)
  rule_params = jax.eval_shape(
    lambda: meta_network.init(jax.random.key(0), small.META_NETWORK)
  )
  loads = footprint.needs([group], rule_params).loads
  running = {load.name: load for load in loads}
  _, (_, members, *_) = running['learn'].call
  learner = memory.device_bytes(members.learner)
  for name in ('learn', 'backward'):
    reported = footprints.reported_bytes(running[name].call)
    held = running[name].measurement()()
    assert held.temporaries + held.states == pytest.approx(reported, rel=0.2)
    assert running[name].bound().total >= held.total
    # Of all updates, at least the states are kept.
    assert held.other > (UPDATES - 1) * learner
