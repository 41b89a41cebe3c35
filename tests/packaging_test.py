"""What is installed, what it requires, and what `import disco_rl` offers."""

import ast
from collections.abc import Iterator
from importlib import metadata
import pathlib
import re
import subprocess
import sys

import pytest

import disco_rl

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_PACKAGE = _REPOSITORY / 'disco_rl'
EXPORTS = {
  'EnvironmentSpec',
  'Heads',
  'Learner',
  'Rollout',
  'Trainer',
  'load_rule',
  'weights',
}
# Extras that only tests and development use.
DEVELOPMENT = {'dev', 'docs', 'notebooks', 'test'}
# Modules that disco_rl imports from a simulator that no registry offers.
UNPUBLISHED = {'deepmind_lab'}
_SETUP = 'import setuptools; setuptools.setup()'


def _run(code: str, folder: pathlib.Path = _REPOSITORY) -> list[str]:
  return subprocess.run(
    [sys.executable, '-c', code],
    cwd=folder,
    check=True,
    capture_output=True,
    text=True,
  ).stdout.split()


def test_importing_does_not_load_jax() -> None:
  code = 'import sys, disco_rl; print("jax" in sys.modules, *dir(disco_rl))'
  loaded, *names = _run(code)
  assert loaded == 'False'
  assert {*names} >= EXPORTS


def test_exports() -> None:
  assert {*disco_rl.__all__} == EXPORTS
  for name in EXPORTS:
    assert f'  {name} ' in disco_rl.__doc__
    assert getattr(disco_rl, name).__name__.split('.')[-1] == name
  with pytest.raises(AttributeError, match='disco_rl attribute trainer'):
    _ = disco_rl.trainer


def test_type_checkers_see_the_exports(tmp_path: pathlib.Path) -> None:
  lines = [f'reveal_type(disco_rl.{name})' for name in sorted(EXPORTS)]
  program = tmp_path / 'program.py'
  program.write_text(
    '\n'.join(['import disco_rl', *lines, 'disco_rl.__version__ + 1'])
  )
  checked = subprocess.run(
    [sys.executable, '-m', 'mypy', str(program)],
    cwd=_REPOSITORY,
    capture_output=True,
    text=True,
  )
  revealed = re.findall(r'Revealed type is "(.*)"', checked.stdout)
  assert len(revealed) == len(EXPORTS), checked.stdout + checked.stderr
  assert 'Any' not in revealed
  assert 'Unsupported operand types for + ("str" and "int")' in checked.stdout


def test_the_version_is_that_of_the_distribution() -> None:
  assert metadata.version('disco_rl') == disco_rl.__version__


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """The packages as a wheel would hold them."""
  folder = tmp_path_factory.mktemp('built')
  command = ['egg_info', '--egg-base', str(folder), 'build_py', '--build-lib']
  subprocess.run(
    [sys.executable, '-c', _SETUP, '-q', *command, str(folder / 'lib')],
    cwd=_REPOSITORY,
    check=True,
    capture_output=True,
  )
  return folder / 'lib'


def test_the_wheel_holds_the_package_alone(built: pathlib.Path) -> None:
  assert [path.name for path in built.iterdir()] == ['disco_rl']
  expected = {
    path.relative_to(_PACKAGE)
    for path in _PACKAGE.rglob('*')
    if path.is_file() and '__pycache__' not in path.parts
  }
  installed = built / 'disco_rl'
  assert pathlib.Path('py.typed') in expected
  assert expected == {
    path.relative_to(installed)
    for path in installed.rglob('*')
    if path.is_file()
  }


def test_what_is_built_can_be_imported(built: pathlib.Path) -> None:
  code = 'import disco_rl; print(disco_rl.__file__, disco_rl.Rollout.__name__)'
  file, name = _run(code, folder=built)
  assert pathlib.Path(file).is_relative_to(built)
  assert name == 'Rollout'


def _imported(folder: str) -> set[str]:
  """Names of packages, not of the standard library, that files import."""
  found = set()
  for path in (_REPOSITORY / folder).rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_bytes())):
      if isinstance(node, ast.Import):
        found |= {alias.name.split('.')[0] for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and not node.level:
        assert node.module is not None
        found.add(node.module.split('.')[0])
  return found - sys.stdlib_module_names - {'configs', 'disco_rl', 'launch'}


def _required(built: pathlib.Path) -> Iterator[tuple[str, str]]:
  """Normalised names of distributions and their extras, '' for none."""
  distribution = metadata.Distribution.at(built.parent / 'disco_rl.egg-info')
  assert distribution.requires
  for requirement in distribution.requires:
    name, extra = re.fullmatch(
      r'([\w.-]+)[^;]*(?:;.*extra == [\'"](\w+)[\'"])?', requirement
    ).groups('')
    yield _normalise(name), extra


def _normalise(name: str) -> str:
  return name.lower().replace('_', '-')


# Distributions whose names are not those of the packages that they install;
# suites are not always installed where tests run.
_DISTRIBUTIONS = {
  'absl': 'absl-py',
  'ale_py': 'ale-py',
  'haiku': 'dm-haiku',
  'orbax': 'orbax-checkpoint',
}


def _distributions(folder: str) -> set[str]:
  names = _imported(folder) - UNPUBLISHED
  return {_normalise(_DISTRIBUTIONS.get(name, name)) for name in names}


def test_all_that_is_imported_is_required(built: pathlib.Path) -> None:
  required = _required(built)
  of_users = {name for name, extra in required if extra not in DEVELOPMENT}
  assert _distributions('disco_rl') <= of_users


def test_core_holds_nothing_that_only_tests_import(
  built: pathlib.Path,
) -> None:
  core = {name for name, extra in _required(built) if not extra}
  imported = set.union(
    *(_distributions(folder) for folder in ('disco_rl', 'launch', 'configs'))
  )
  assert core <= imported
