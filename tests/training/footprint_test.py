"""What training with a fixed rule takes: estimated, compiled, refused."""

import json
import pathlib
from typing import Any

import footprints
import jax
import numpy as np
import pytest

from configs import evaluate
from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.planning import fitting
from disco_rl.runtime import memory
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.training import footprint
from disco_rl.training import parallel
from disco_rl.training import runner
from disco_rl.update_rules import actor_critic

BATCH, LENGTH, CAPACITY = 8, 5, 40


def make_agent(
  torso: str, core: int = 0, chunk: int = 0, **settings: Any
) -> agent_lib.Agent:
  network = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(torso, (4, 8), (32,), chunk_size=chunk), core_lstm=core
  )
  config = agent_lib.AgentConfig(
    network,
    unroll_length=LENGTH,
    batch_size=BATCH,
    num_environments=4,
    replay_capacity=CAPACITY,
    **settings,
  )
  spec = types.EnvironmentSpec(footprints.OBSERVATIONS[torso], num_actions=3)
  return agent_lib.make(config, spec, actor_critic.ActorCritic(num_bins=5))


def make(agent: agent_lib.Agent, num_agents: int = 1) -> parallel.HostTraining:
  nothing: Any = None  # Environments are needed only to act.
  return parallel.HostTraining(agent, nothing, num_agents)


@pytest.mark.parametrize(
  ('torso', 'core', 'chunk'),
  [
    ('mlp', 8, 0),
    ('resnet', 0, 16),
    # They take longer to compile, and say the same.
    pytest.param('impala', 8, 0, marks=pytest.mark.slow),
    pytest.param('nethack', 0, 0, marks=pytest.mark.slow),
  ],
)
def test_the_estimate_is_what_xla_reports(
  torso: str, core: int, chunk: int
) -> None:
  agents = make(make_agent(torso, core, chunk))
  _, learn = footprint.needs(agents, {}).loads
  bound, estimate = learn.bound(), learn.measurement()()
  held = footprints.reported_bytes(learn.call)
  _, (_, state, batch) = learn.call
  parameters = sum(x.nbytes for x in map(zeros, jax.tree.leaves(state.params)))
  waiting = sum(x.nbytes for x in map(zeros, jax.tree.leaves(batch)))
  assert estimate.total == pytest.approx(held + parameters + waiting, rel=0.2)
  assert bound.total >= estimate.total


def zeros(shape: jax.ShapeDtypeStruct) -> np.ndarray:
  return np.zeros(shape.shape, shape.dtype)


def test_chunks_of_the_torso_are_seen() -> None:
  _, whole = footprint.needs(make(make_agent('impala')), {}).loads
  _, chunked = footprint.needs(make(make_agent('impala', chunk=8)), {}).loads
  most = [x.bound().temporaries for x in (whole, chunked)]
  assert most[1] < 0.5 * most[0]


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
  needs = footprint.needs(make(make_agent('mlp'), 2), {})
  needed = max(load.measurement()().total for load in needs.loads)
  host = needs.host
  assert host > 2 * CAPACITY * (LENGTH + 1) * 2_000  # Of observations alone.
  monkeypatch.setattr(memory, 'host_bytes', lambda: host)
  monkeypatch.setattr(fitting, 'device_bytes', lambda _: needed)
  needs.check()
  monkeypatch.setattr(fitting, 'device_bytes', lambda _: needed - 1)
  with pytest.raises(fitting.DoesNotFitError, match='GiB.*lower seeds.*=-1'):
    needs.check()
  monkeypatch.setattr(memory, 'host_bytes', lambda: host - 1)
  with pytest.raises(ValueError, match='replay_on_disk=True'):
    needs.check()


@pytest.mark.parametrize(
  ('chunk', 'is_offered'), [(0, True), (1, False), (32, False), (33, True)]
)
def test_chunks_are_offered_where_they_may_be_smaller(
  chunk: int, is_offered: bool
) -> None:
  load, _ = footprint.needs(make(make_agent('mlp', chunk=chunk)), {}).loads
  assert ('set torso_chunk_size=-1' in load.remedies) == is_offered


def test_the_first_size_that_fits_is_chosen_and_kept(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capfd: pytest.CaptureFixture[str],
) -> None:
  settings = {
    **evaluate.get_config('quickstart').to_dict(),
    'environment': 'catch/2x2',
    'rule': 'policy_gradient',
    'updates': 1,
    'seeds': 1,
    'hidden_sizes': (4,),
    'torso_chunk_size': config_lib.AUTOMATIC,
  }
  needs, tried = footprint.needs, []

  def refuse_large_ones(training: Any, rule_params: types.Params) -> Any:
    size = training.agent.config.network.torso.chunk_size
    tried.append(size)
    if size in (0, 512):
      raise fitting.DoesNotFitError('too large')
    return needs(training, rule_params)

  monkeypatch.setattr(footprint, 'needs', refuse_large_ones)
  config = training_config.config_of(settings)
  run = runner.TrainingRun(config)
  assert tried == [0, 512, 128]
  assert 'torso_chunk_size=128 fits into memory' in capfd.readouterr().err
  run.run(tmp_path, settings)
  kept = json.loads((tmp_path / 'config.json').read_text())
  assert kept['torso_chunk_size'] == 128
  again = workdirs.with_choices(tmp_path, settings)
  assert again == {**settings, 'torso_chunk_size': 128}
  workdirs.check(tmp_path, again, free=())
  assert workdirs.with_choices(tmp_path / 'new', settings) == settings


@pytest.mark.parametrize(
  ('groups', 'limit'),
  [
    ('0::/job/step\n', 'job/memory.max'),
    ('0::/\n', 'memory.max'),
    ('9:cpu:/job\n4:hugetlb,memory:/job\n', 'memory/memory.limit_in_bytes'),
  ],
)
def test_the_memory_of_a_container_is_that_of_its_group(
  groups: str,
  limit: str,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  of_machine = memory.host_bytes()
  monkeypatch.setattr(memory, '_ROOT', tmp_path)
  file = tmp_path / 'sys/fs/cgroup' / limit
  file.parent.mkdir(parents=True)
  (tmp_path / 'proc/self').mkdir(parents=True)
  file.write_text('12345\n')
  assert memory.host_bytes() >= of_machine
  (tmp_path / 'proc/self/cgroup').write_text(groups)
  assert memory.host_bytes() == 12345
  file.write_text('max\n')
  assert memory.host_bytes() >= of_machine
