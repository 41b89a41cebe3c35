import jax
import pytest

from disco_rl.runtime import compile_times


@pytest.fixture(name='folder')
def _folder(tmp_path):
  names = ('jax_compilation_cache_dir', 'jax_enable_compilation_cache')
  before = {name: jax.config.values[name] for name in names}
  jax.config.update('jax_compilation_cache_dir', str(tmp_path))
  jax.config.update('jax_enable_compilation_cache', True)
  yield tmp_path
  for name, value in before.items():
    jax.config.update(name, value)


@pytest.fixture(name='clock')
def _clock(monkeypatch):
  times = iter([0.0, 41.7, 100.0, 102.2, 200.0, 201.0])
  monkeypatch.setattr(compile_times.time, 'perf_counter', lambda: next(times))


def _status(key):
  status = compile_times.status(key)
  with compile_times.kept(key):
    pass
  return status


@pytest.mark.usefixtures('folder', 'clock')
def test_the_time_of_the_last_run_is_shown():
  assert _status('a') == 'compiling'
  assert _status('a') == 'compiling (42 s the last time)'
  assert _status('a') == 'compiling (2 s the last time)'


@pytest.mark.usefixtures('folder', 'clock')
def test_runs_of_other_programs_keep_their_own():
  assert _status('a') == _status('b') == 'compiling'


@pytest.mark.usefixtures('clock')
def test_a_damaged_time_is_not_shown(folder):
  _status('a')
  (path,) = folder.glob('seconds/*')
  path.write_text('?')
  assert _status('a') == 'compiling'


@pytest.mark.usefixtures('folder', 'clock')
def test_what_fails_keeps_no_time():
  with pytest.raises(MemoryError), compile_times.kept('a'):
    raise MemoryError
  assert _status('a') == 'compiling'


def test_without_a_folder_nothing_is_kept(monkeypatch):
  before = jax.config.jax_compilation_cache_dir
  jax.config.update('jax_compilation_cache_dir', None)
  try:
    _status('a')
    assert _status('a') == 'compiling'
  finally:
    jax.config.update('jax_compilation_cache_dir', before)
