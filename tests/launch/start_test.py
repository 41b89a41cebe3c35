"""What launchers protect a process from, and what they refuse."""

import pathlib
import runpy
import signal
import subprocess
import sys
from types import ModuleType

from absl import flags
import launching
import pytest

from configs import evaluate
from disco_rl import __main__ as command
from disco_rl import config as config_lib
from disco_rl import paths
from disco_rl.runtime import files
from disco_rl.runtime import npz
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import registry as rules
from disco_rl.update_rules import sources
from launch import common
from launch import scheduler
from launch import train as train_launcher

SDL = """
import os, signal, time
from absl import flags
from launch import common

flags.FLAGS(['launcher'])
common.begin(['launcher'], is_cached=None)
import matplotlib.figure
from disco_rl.environments import registry

environment = registry.make('gymnasium/CartPole-v1', 1, 0, can_render=True)
environment.reset()
environment.render()
print('drawing', flush=True)
os.kill(os.getpid(), signal.SIGTERM)
environment.render()
time.sleep(1)
"""
LOGGING = """
import logging, sys
import numpy as np
from disco_rl.runtime import checkpointing
from matplotlib import pyplot

with checkpointing.Checkpointer(sys.argv[1]) as checkpointer:
  checkpointer.save(1, {'x': np.zeros(1)})
assert checkpointing.read(checkpointer._directory, {'x': np.zeros(1)})[0] == 1
logging.basicConfig(level=logging.INFO, format='mine: %(message)s')
logging.info('shown')
"""


def test_packages_that_draw_take_no_signals_and_need_no_backend() -> None:
  pytest.importorskip('pygame')
  ended = launching.run_python(
    '-c', SDL, MPLBACKEND='module://not_there', SDL_VIDEODRIVER='dummy'
  )
  assert 'drawing' in ended.stdout, ended.stderr
  assert ended.returncode == -signal.SIGTERM


def test_flags_of_paths_know_the_home_directory(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv('HOME', '/home/someone')
  for flag in (common.workdir_flag(), common.cache_flag(), common.from_flag()):
    parse = flags.FLAGS[flag.name].parser.parse
    assert parse('~/run.npz') == '/home/someone/run.npz'
    assert parse('runs/~') == f'{pathlib.Path.cwd()}/runs/~'
    for text, message in (('', 'is empty'), ('gs://a/run', 'is an address')):
      with pytest.raises(ValueError, match=message):
        parse(text)
  monkeypatch.setattr(config_lib.os.path, 'expanduser', str)
  with pytest.raises(ValueError, match='no home directory. Set .* HOME'):
    parse('~/run')


@pytest.mark.parametrize(
  ('name', 'base', 'file'),
  [
    ('catch', None, 'evaluate.py:catch'),
    ('quickstart', None, 'quickstart.py'),
    ('quickstart', evaluate, 'evaluate.py:quickstart'),
    ('ablations:no_q', None, 'ablations.py:no_q'),
  ],
)
def test_configs_are_found_by_name(
  name: str, base: ModuleType | None, file: str
) -> None:
  path = launching.REPOSITORY / 'configs' / file
  with launching.parsed(f'--config={path}', '--workdir=x') as expected:
    pass
  with launching.parsed(f'--config={name}', '--workdir=x', base=base) as found:
    assert found == expected


@pytest.mark.parametrize(
  'returned', ['config.to_dict()', 'ml_collections.FrozenConfigDict(config)']
)
def test_configs_may_be_dictionaries_or_frozen(
  returned: str, tmp_path: pathlib.Path
) -> None:
  file = tmp_path / 'mine.py'
  file.write_text(
    'import ml_collections\nfrom configs import evaluate\n'
    'def get_config():\n'
    '  config = evaluate.get_config()\n'
    f'  return {returned}\n'
  )
  flags_of = lambda x: (f'--config={x}', '--workdir=x', '--config.seeds=2')
  with launching.parsed(*flags_of(evaluate.__file__)) as expected:
    pass
  with launching.parsed(*flags_of(file)) as found:
    assert found == expected
  unknown = (*flags_of(file)[:1], '--config.sedes=2')
  assert 'sedes' in launching.error(train_launcher, tmp_path, *unknown)
  file.write_text('def get_config():\n  pass\n')
  message = launching.error(train_launcher, tmp_path, f'--config={file}')
  assert f'get_config of {file} returned NoneType' in message


@pytest.mark.parametrize('name', ['cach', 'configs/cach.py'])
def test_a_config_that_there_is_not(name: str, tmp_path: pathlib.Path) -> None:
  message = launching.error(train_launcher, tmp_path, f'--config={name}')
  assert f'{name!r}. Choose one of catch, or name a file' in message


def test_a_script_may_log_and_draw(tmp_path: pathlib.Path) -> None:
  ended = launching.run_python(
    *('-c', LOGGING, f'{tmp_path / "checkpoints"}'),
    MPLBACKEND='module://not_there.inline',
  )
  assert ended.returncode == 0, ended.stderr
  assert 'mine: shown' in ended.stderr.splitlines()


def test_python_without_assertions_is_refused(tmp_path: pathlib.Path) -> None:
  ended = launching.run_python(
    '-m', 'launch.train', f'--workdir={tmp_path}', PYTHONOPTIMIZE='1'
  )
  assert ended.returncode == 1
  assert ended.stderr.startswith('error: Python runs without assertions, by -O')
  assert len(ended.stderr.splitlines()) == 1


def test_files_of_the_user_do_not_replace_modules_of_the_program(
  tmp_path: pathlib.Path,
) -> None:
  """Nor in the processes of a sweep; --import still finds the user's."""
  for name in ('queue', 'json', 'numpy', 'absl', 'launch'):
    (tmp_path / f'{name}.py').write_text('raise RuntimeError("shadowed")')
  (tmp_path / 'my_tasks.py').write_text('print("imported")')
  command = pathlib.Path(sys.executable).with_name('disco-rl')
  listing = subprocess.run(
    [command, 'list-environments', '--suite=catch', '--import=my_tasks'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert listing.returncode == 0, listing.stderr
  assert listing.stdout.startswith('imported\n')
  worker = subprocess.run(
    [sys.executable, *scheduler.WORKER],
    cwd=tmp_path,
    input='',
    capture_output=True,
    text=True,
  )
  # It ends once its input has ended.
  assert worker.returncode == -signal.SIGTERM, worker.stderr


def test_paths_of_a_command_refer_to_the_folder_of_its_start(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path)
  rule, params = rules.load('general')
  rules.save('rule.npz', rule, params)
  common.prepare_process()
  monkeypatch.chdir('elsewhere')
  assert paths.absolute('x') == f'{tmp_path}/x'
  assert paths.shown(tmp_path / 'x' / 'y') == 'x/y'
  assert paths.shown('/x') == '/x'
  # The setting is still as the user gave it: folders may be moved together.
  config = training_config.config_of(
    {'environment': 'catch', 'rule': './rule.npz'}
  )
  assert config.rule == './rule.npz'
  path = f'{tmp_path}/rule.npz'
  assert sources.locate('rule.npz') == path
  assert sources.files_among(['rule.npz']) == {'rule.npz': path}
  files.check_writable('agent.npz')
  npz.write('agent.npz', {}, {})
  assert (tmp_path / 'agent.npz').exists()
  assert not list((tmp_path / 'elsewhere').iterdir())


def test_settings_that_name_the_same_file_are_the_same(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.chdir(tmp_path)
  workdirs.claim(tmp_path / 'run', {'rule': 'a/rule.npz'}, ())
  workdirs.check(tmp_path / 'run', {'rule': f'{tmp_path}/a/rule.npz'}, ())
  with pytest.raises(workdirs.WorkdirError, match='rule was'):
    workdirs.check(tmp_path / 'run', {'rule': f'{tmp_path}/b/rule.npz'}, ())


@pytest.mark.parametrize(
  ('arguments', 'is_searched'),
  [
    (['play', '--agent=x.npz'], False),
    (['compare', 'runs/a'], False),
    (['play', '--agent=x.npz', '--import=mine'], True),
    (['play', '--agent', 'x.npz', '--play_in=gymnasium/mine:X-v0'], True),
    (['evaluate', '--config=mine.py'], True),
  ],
)
def test_the_folder_is_searched_only_for_what_the_user_names(
  arguments: list[str],
  is_searched: bool,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """A file of a stranger may have come with modules beside it."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'argv', ['disco-rl', *arguments])
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  monkeypatch.setattr(runpy, 'run_module', lambda *_, **__: None)
  command.main()
  assert (str(tmp_path) in sys.path) == is_searched


@pytest.mark.parametrize(
  ('name', 'meant'),
  [
    *[(x, 'train?') for x in ('trian', 'Train', 'learn', 'fit')],
    *[('evalute', 'evaluate?'), ('eval', 'play?'), ('discover', 'meta-train?')],
    *[('list_environment', 'list-environments?'), ('plot', 'compare?')],
    *[('xyz', 'evaluate.'), ('--config=catch', 'The command comes first')],
  ],
)
def test_the_command_that_is_meant_is_proposed(
  name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(sys, 'argv', ['disco-rl', name])
  monkeypatch.setattr(sys, 'path', [*sys.path])
  with pytest.raises(SystemExit) as ended:
    command.main()
  assert meant in str(ended.value)


def test_commands_and_configs_are_listed() -> None:
  lines = command._help().splitlines()
  assert lines[1:3] == ['', 'Commands:']
  of_configs = lines.index('Configs, for --config:')
  assert lines[of_configs - 1] == ''
  commands, configs = lines[3 : of_configs - 1], lines[of_configs + 1 : -2]
  assert '  train ' in [x[:8] for x in commands]
  assert '  catch' in [x.rstrip()[:7] for x in configs]
  assert all(x.startswith('  ') for x in commands + configs)


def test_evaluate_is_another_name_of_train(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  started: list[str] = []
  monkeypatch.setattr(sys, 'path', [*sys.path])
  monkeypatch.setattr(
    runpy, 'run_module', lambda name, **_: started.append(name)
  )
  for name in ('train', 'evaluate'):
    monkeypatch.setattr(sys, 'argv', ['disco-rl', name])
    command.main()
  assert started == ['launch.train', 'launch.train']


# Runs commands; prints the message of each, and whether JAX was loaded.
_MESSAGES = """
import os, runpy, sys
for command in sys.argv[1:]:
  if os.fork():
    os.wait()
    continue
  sys.argv[:] = ['disco-rl', *command.split()]
  try:
    runpy.run_module('disco_rl', run_name='__main__')
  except SystemExit as ended:
    print(ended.code, 'jax' in sys.modules, flush=True)
  os._exit(0)
"""


def test_messages_that_need_no_jax() -> None:
  """Loading it takes seconds, for which a slip of the pen should not wait."""
  messages = {
    'train --config=catch': 'Name the folder of the run, as in --workdir=runs/',
    'train --workdir=x': 'Name the settings to begin with, as in --config=',
    'train --config=catch --workdir=x --rule=y': 'config: --config.rule=VALUE',
    'train --config=catch --wrokdir=x': 'Did you mean --workdir?',
    'train --config=cach --workdir=x': "no config 'cach'. Choose one of catch,",
    'meta-train --config=catch --workdir=x': 'is a starting point of disco-rl',
    'play --epsiodes=3': 'Did you mean --episodes?',
    'play --rule=x': 'There is no flag --rule. --help lists those of this',
  }
  done = launching.run_python('-c', _MESSAGES, *messages)
  lines = done.stdout.splitlines()
  assert len(lines) == len(messages), done.stderr
  for line, message in zip(lines, messages.values()):
    assert line.startswith('error: ')
    assert message in line
    assert line.endswith(' False')


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
  flags_of = ('--config=catch', '--workdir=x')
  given = ('--config.steps=1.5e3', '--config.learning_rate=1e-3')
  with launching.parsed(*flags_of, *given) as found:
    assert found['steps'] == 1500
    assert found['learning_rate'] == 1e-3
  with launching.parsed(*flags_of, '--config.updates=2e1') as found:
    assert found['updates'] == 20
