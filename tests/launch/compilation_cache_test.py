"""The cache of compiled programs: what is kept, and what must not break a run.

Each call of `events` stands for a process: JAX remembers nothing but the files.
"""

from collections.abc import Iterator
import errno
import fcntl
import os
import pathlib
import subprocess
import sys
from typing import Any
from unittest import mock

from absl import flags
import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache
import launching
import numpy as np
import pooch
import pytest

from disco_rl.agent import agent as agent_lib
from disco_rl.environments.jax_native import catch
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import compilation
from disco_rl.runtime import compilation_cache as runtime_cache
from disco_rl.runtime import files
from disco_rl.training import parallel
from disco_rl.update_rules import registry
from launch import common

HIT, MISS = 'cache_hits', 'cache_misses'
VARIABLES = (
  'JAX_COMPILATION_CACHE_DIR',
  'JAX_COMPILATION_CACHE_MAX_SIZE',
  'JAX_ENABLE_COMPILATION_CACHE',
  'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS',
  'TF_CPP_MIN_LOG_LEVEL',
)


@pytest.fixture(name='folder')
def _folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A folder that is used as launchers use it."""
  folder = tmp_path / 'cache'
  settings = {
    'jax_compilation_cache_dir': str(folder),
    'jax_compilation_cache_max_size': 2**24,
    # A test before may have turned it off.
    'jax_enable_compilation_cache': True,
    'jax_persistent_cache_min_compile_time_secs': 0.0,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  for name, value in settings.items():
    jax.config.update(name, value)
  yield folder
  for name, value in before.items():
    jax.config.update(name, value)
  jax_cache.reset_cache()


def add_one(x: Any) -> Any:
  return x + 1


def add_two(x: Any) -> Any:
  return x + 2


def events(function: Any = add_one, **settings: bool) -> list[str]:
  """Compiles and runs a function; whether it was found in the cache."""
  seen: list[str] = []
  listen = lambda event, **_: seen.append(event.rsplit('/', 1)[-1])
  x = np.zeros(3, np.float32)
  jax_cache.reset_cache()
  jax.clear_caches()
  jax.monitoring.register_event_listener(listen)
  result = compilation.Program(function, **settings)(x)
  jax.monitoring.unregister_event_listener(listen)
  np.testing.assert_array_equal(result, function(x))
  return [event for event in seen if event in (HIT, MISS)]


def entries(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(folder.glob('*-cache'))


@pytest.mark.parametrize('runs_often', [True, False])
def test_programs_are_found_again(
  folder: pathlib.Path, runs_often: bool
) -> None:
  assert events(runs_often=runs_often) == [MISS]
  assert events(runs_often=runs_often) == [HIT]
  assert events(add_two, runs_often=runs_often) == [MISS]
  assert events(runs_often=not runs_often) == [MISS]
  assert len(entries(folder)) == 3


@pytest.mark.parametrize(
  ('before', 'after'),
  [
    (None, runtime_cache.ROLLED_LOOPS),
    ('--xla_a=1', f'--xla_a=1 {runtime_cache.ROLLED_LOOPS}'),
    ('--xla_backend_extra_options=b', '--xla_backend_extra_options=b'),
  ],
)
def test_flags_of_the_user_are_kept(
  before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  # First set, so that it is restored where it was absent.
  monkeypatch.setenv('XLA_FLAGS', before or '')
  if before is None:
    monkeypatch.delenv('XLA_FLAGS')
  runtime_cache.leave_loops_rolled()
  assert os.environ['XLA_FLAGS'] == after


def inherited() -> dict[str, str]:
  """Environment variables without those that `set_up` sets in this process."""
  return {x: os.environ[x] for x in os.environ if x not in VARIABLES}


def chosen(
  monkeypatch: pytest.MonkeyPatch, flag: str | None, **variables: str
) -> dict[str, str]:
  """The variables after `set_up_cache` with a flag as it is typed."""
  parser = flags.FLAGS[common.cache_flag().name].parser
  for name in VARIABLES:
    monkeypatch.delenv(name, raising=False)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  common.set_up_cache(flag and parser.parse(flag))
  after = {name: os.environ[name] for name in VARIABLES if name in os.environ}
  after.pop('TF_CPP_MIN_LOG_LEVEL', None)
  return after


def test_the_folder_is_chosen_by_flag_variable_and_default(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  variable, size, enable, seconds, _ = VARIABLES
  ours = {size: str(2**30), seconds: '0.1'}
  theirs = {variable: '/theirs'}
  default = str(pathlib.Path(pooch.os_cache('disco_rl')) / 'programs')
  assert chosen(monkeypatch, None) == {variable: default, **ours}
  assert chosen(monkeypatch, None, **theirs) == theirs
  a = f'{tmp_path}/a'
  assert chosen(monkeypatch, a, **theirs) == {variable: a, **ours}
  assert chosen(monkeypatch, 'off', **theirs) == {**theirs, enable: 'false'}
  assert chosen(monkeypatch, a, **{size: '5'})[size] == '5'
  no_home = mock.Mock(side_effect=RuntimeError('no home directory'))
  monkeypatch.setattr(pooch, 'os_cache', no_home)
  assert chosen(monkeypatch, None) == {}


def test_a_program_from_the_cache_computes_the_same_bit_for_bit(
  folder: pathlib.Path,
) -> None:
  rule, params = registry.load('policy_gradient')
  environment = catch.Catch(4, 3)
  torso = torsos.TorsoConfig(hidden_sizes=(8,))
  config = agent_lib.AgentConfig(
    agent_network.AgentNetworkConfig(torso),
    unroll_length=4,
    batch_size=4,
    num_environments=2,
    replay_capacity=8,
  )
  agent = agent_lib.make(config, environment.spec, rule)
  keys = jax.random.split(jax.random.key(0), 2)

  def train() -> Any:
    jax_cache.reset_cache()
    jax.clear_caches()
    agents = parallel.make(agent, environment, 2)
    state, _ = agents.advance(params, agents.init(keys), 5)
    return jax.tree.map(files.to_data, state)

  compiled, kept = train(), entries(folder)
  assert {'jit__advance_all', 'jit__init_one'} <= {
    entry.name.rsplit('-', 2)[0] for entry in kept
  }
  found = train()
  assert entries(folder) == kept
  jax.tree.map(np.testing.assert_array_equal, found, compiled)


TRAINER = """if True:
  import jax
  import disco_rl
  trainer = disco_rl.Trainer(
    'catch/4x3', 'actor_critic', unroll_length=4, batch_size=4,
    num_environments=2, replay_capacity=8, hidden_sizes=(8,)
  )
  trainer.train(1, log_every=1)
  print(jax.config.jax_compilation_cache_dir)
"""


def trained(cache: pathlib.Path) -> tuple[str, str]:
  """The folder that a trainer uses in a fresh process, and its stderr."""
  ended = subprocess.run(
    [sys.executable, '-c', TRAINER],
    cwd=launching.REPOSITORY,
    env={
      **inherited(),
      'XDG_CACHE_HOME': str(cache),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    },
    capture_output=True,
    text=True,
    check=True,
  )
  return ended.stdout.strip(), ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='elsewhere other variables')
def test_trainers_use_the_cache(
  tmp_path: pathlib.Path,
) -> None:
  default = tmp_path / 'disco_rl' / 'programs'
  assert trained(tmp_path)[0] == str(default)
  kept = entries(default)
  assert any('_advance_all' in entry.name for entry in kept)
  found, stderr = trained(tmp_path)
  assert found == str(default)
  assert entries(default) == kept
  assert 'AOT' not in stderr


@pytest.mark.parametrize(
  'chosen',
  [
    {'jax_compilation_cache_dir': '/theirs'},
    {
      'jax_compilation_cache_dir': None,
      'jax_enable_compilation_cache': False,
    },
  ],
)
def test_what_the_user_has_chosen_stays(
  chosen: dict[str, Any], folder: pathlib.Path
) -> None:
  for name, value in chosen.items():
    jax.config.update(name, value)
  runtime_cache.use_default_folder()
  want = chosen['jax_compilation_cache_dir']
  assert jax.config.jax_compilation_cache_dir == want


def test_launchers_choose_the_folder_before_jax_is_imported() -> None:
  # JAX reads the variables when it is imported, and would keep nothing.
  launchers = ('train', 'meta_train', 'play', 'protocol', 'showcase')
  code = ''.join(
    f'import launch.{name}; assert "jax" not in sys.modules, "{name}"\n'
    for name in launchers
  )
  ended = launching.run_python('-c', f'import sys\n{code}')
  assert ended.returncode == 0, ended.stderr


def test_the_size_has_a_limit_only_where_there_are_locks(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.delenv('JAX_COMPILATION_CACHE_MAX_SIZE', raising=False)
  size = 'jax_compilation_cache_max_size'
  assert runtime_cache.defaults(tmp_path / 'new')[size] == 2**30
  fail = mock.Mock(side_effect=OSError(errno.ENOSYS, 'no locks'))
  monkeypatch.setattr(fcntl, 'flock', fail)
  assert size not in runtime_cache.defaults(tmp_path)
