"""--import: the user's own rules, environments and loggers, by name."""

from collections.abc import Callable
from collections.abc import Iterator
import json
import pathlib
import sys
from types import ModuleType

from absl import flags
from absl.testing import flagsaver
import launching
import pytest

import disco_rl
from disco_rl.environments import families
from disco_rl.environments import registry as environments
from disco_rl.environments.jax_native import catch
from disco_rl.runtime import loggers
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import registry as rules
from launch import analyse
from launch import common
from launch import compare
from launch import list_environments
from launch import plan
from launch import play
from launch import showcase

MODULE = """
import dataclasses
from disco_rl.environments import registry as environments
from disco_rl.environments.jax_native import catch
from disco_rl.runtime import loggers
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import registry as rules

@dataclasses.dataclass(frozen=True)
class Mine(actor_critic.ActorCritic):
  boldness: float = 1.0

rules.register('mine', Mine)
environments.register('wide', lambda n, seed: catch.Catch(4, 9), 'device')
loggers.register('silence', lambda run: None)
"""


@pytest.fixture
def module(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
  """The name of a module, whose registrations are removed afterwards."""
  (tmp_path / 'my_module_of_rules.py').write_text(MODULE)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(workdirs, 'IMPORTED', [])
  yield 'my_module_of_rules'
  sys.modules.pop('my_module_of_rules', None)
  rules._HAND_MADE.pop('mine', None)
  families.FAMILIES.pop('wide', None)
  loggers._FACTORIES.pop('silence', None)


def test_what_a_module_registers_has_a_name(module: str) -> None:
  with launching.parsed(
    f'--config={launching.REPOSITORY}/configs/evaluate.py',
    '--workdir=x',
    f'--import={module}',
    '--config.rule=mine',
    '--config.environment=wide',
    '--config.discount=0.5',
    '--config.loggers=silence',
  ) as settings:
    common.import_modules()
    # A config may have settings of the user's own rule.
    config = training_config.config_of({**settings, 'boldness': 2.0})
  rule, params = rules.load(config.rule, **config.rule_settings)
  assert isinstance(rule, actor_critic.ActorCritic)
  assert (rule.discount, vars(rule)['boldness'], params) == (0.5, 2.0, {})
  environment = environments.make(config.environment, 1, 0)
  assert isinstance(environment, catch.Catch)
  assert environment.spec.observation.shape == (4, 9)
  assert 'wide' in environments.names()
  assert config.loggers == ('silence',)


def test_modules_of_the_folder_come_before_installed_ones(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """But do not replace those that the program uses."""
  for name in ('installed', 'own'):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'my_two_modules.py').write_text(f'WHERE = {name!r}')
  (tmp_path / 'own' / 'json.py').touch()
  (tmp_path / 'own' / 'my_broken_module.py').write_text('1 / 0')
  monkeypatch.syspath_prepend(tmp_path / 'installed')
  monkeypatch.chdir(tmp_path / 'own')
  common.import_module('my_two_modules')
  assert sys.modules.pop('my_two_modules').WHERE == 'own'
  with pytest.raises(ImportError, match='json.py is called like a module'):
    common.import_module('json')
  with pytest.raises(ZeroDivisionError):
    common.import_module('my_broken_module')
  assert 'my_broken_module' not in sys.modules


def test_runs_remember_what_they_import(
  module: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(**{'import': [module]}):
    common.import_modules()
  workdirs.claim(tmp_path / 'run', {}, ())
  # As in another process.
  del families.FAMILIES['wide'], sys.modules[module]
  monkeypatch.setattr(workdirs, 'IMPORTED', [])
  monkeypatch.setenv('HOME', f'{tmp_path}')
  settings = {'environment': 'wide'}
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(settings))
  with pytest.raises(ValueError, match=f'{module} registers.*import it first'):
    disco_rl.load_policy(tmp_path / 'run')
  # The folder may be from a stranger: only the command's own flag imports.
  with pytest.raises(SystemExit, match=f'trust it, add --import={module} to'):
    common.import_modules('~/run')
  assert module not in sys.modules
  with flagsaver.flagsaver(**{'import': [module]}):
    common.import_modules('~/run')
  assert 'wide' in environments.names()
  workdirs.claim(tmp_path / 'run', settings, ())
  assert workdirs.imports(tmp_path / 'run') == [module]


def test_names_of_modules_are_names(tmp_path: pathlib.Path) -> None:
  """A message repeats them in a flag to copy into a shell."""
  text = '{"modules": ["x; rm -rf ~"]}'
  (tmp_path / 'imports.json').write_text(text)
  with pytest.raises(workdirs.WorkdirError, match='does not list modules'):
    workdirs.imports(tmp_path)


@pytest.mark.parametrize('launcher', [analyse, play, showcase])
def test_launchers_do_not_import_what_a_folder_names(
  launcher: ModuleType, module: str, tmp_path: pathlib.Path
) -> None:
  (tmp_path / 'imports.json').write_text(json.dumps({'modules': [module]}))
  message = launching.error_of_main(launcher, workdir=f'{tmp_path}')
  assert f'{tmp_path} uses names that {module} registers' in message
  assert module not in sys.modules


@pytest.mark.parametrize(
  'arguments',
  [
    ['--config.environment=gymnasium/{}:X-v0'],
    ['--config.environment=catch', '--play_in=gymnasium/{}:X-v0'],
  ],
)
def test_modules_of_environments_that_flags_name_are_imported(
  module: str, arguments: list[str]
) -> None:
  with launching.parsed(
    f'--config={launching.REPOSITORY}/configs/evaluate.py',
    '--workdir=x',
    *(x.format(module) for x in arguments),
  ):
    common.import_modules()
  assert module in sys.modules
  # For processes that share the work.
  assert [module] == workdirs.IMPORTED


def test_imported_environments_are_listed(
  module: str, capsys: pytest.CaptureFixture[str]
) -> None:
  values = {'import': [module], 'json': True, 'suite': 'wide'}
  launching.call_main(list_environments, **values)
  (row,) = json.loads(capsys.readouterr().out)
  assert (row['name'], row['kind'], row['problem']) == ('wide', 'device', None)


@pytest.mark.parametrize(
  'load',
  [
    common.import_modules,
    lambda: compare.main(['compare', 'x']),
    lambda: plan.main(['plan']),
  ],
)
def test_a_module_that_is_missing(load: Callable[[], None]) -> None:
  with (
    launching.parsed(
      f'--config={launching.REPOSITORY}/configs/evaluate.py',
      '--workdir=x',
      '--import=no_such_module',
    ),
    pytest.raises(SystemExit, match='--import=no_such_module: No module'),
  ):
    load()


def test_what_cannot_be_registered() -> None:
  with pytest.raises(ValueError, match="'catch' cannot be registered"):
    environments.register('catch', lambda *_: catch.Catch(), 'device')
  with pytest.raises(TypeError, match='expected a class that is a dataclass'):
    rules.register('mine', actor_critic.ActorCritic())
