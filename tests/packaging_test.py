"""What is installed, what it requires, and what `import disco_rl` offers."""

import ast
from collections.abc import Iterator
from importlib import metadata
import pathlib
import re
import shlex
import sys
import tomllib
from typing import Any

import launching
import pytest

import disco_rl
from disco_rl import extras

_PACKAGE = launching.REPOSITORY / 'disco_rl'
EXPORTS = {
  'EnvironmentSpec',
  'Heads',
  'Learner',
  'Policy',
  'Rollout',
  'Trainer',
  'load_agent',
  'load_policy',
  'load_rule',
  'rules',
  'share_policy',
  'share_rule',
  'weights',
}
# Extras that only tests and development use.
DEVELOPMENT = {'dev', 'docs', 'notebooks', 'test'}
# Modules that disco_rl imports from a simulator that no registry offers.
UNPUBLISHED = {'deepmind_lab'}


def _run(*arguments: str) -> list[str]:
  """Returns the words that Python prints."""
  ended = launching.run_python(*arguments)
  assert ended.returncode == 0, ended.stderr
  return ended.stdout.split()


def test_importing_does_not_load_jax() -> None:
  code = 'import sys, disco_rl; print("jax" in sys.modules, *dir(disco_rl))'
  loaded, *names = _run('-c', code)
  assert loaded == 'False'
  assert {*names} >= EXPORTS


def test_exports() -> None:
  assert {*disco_rl.__all__} == EXPORTS
  for name in EXPORTS:
    assert f'  {name} ' in disco_rl.__doc__
    assert getattr(disco_rl, name).__name__.split('.')[-1] == name
  with pytest.raises(AttributeError, match='disco_rl attribute trainer'):
    _ = disco_rl.trainer


def test_a_program_beside_a_clone_finds_the_package(
  tmp_path: pathlib.Path,
) -> None:
  """The folder of a clone has the package's name, and is none."""
  (tmp_path / 'disco_rl').mkdir()
  program = tmp_path / 'program.py'
  program.write_text('import disco_rl; print(disco_rl.__version__)')
  assert _run(str(program)) == [disco_rl.__version__]


def test_type_checkers_see_the_exports(tmp_path: pathlib.Path) -> None:
  lines = [f'reveal_type(disco_rl.{name})' for name in sorted(EXPORTS)]
  program = tmp_path / 'program.py'
  program.write_text(
    '\n'.join(['import disco_rl', *lines, 'disco_rl.__version__ + 1'])
  )
  checked = launching.run_python('-m', 'mypy', str(program))
  revealed = re.findall(r'Revealed type is "(.*)"', checked.stdout)
  assert len(revealed) == len(EXPORTS), checked.stdout + checked.stderr
  assert 'Any' not in revealed
  assert 'Unsupported operand types for + ("str" and "int")' in checked.stdout


def test_the_version_is_that_of_the_distribution() -> None:
  assert metadata.version(extras.DISTRIBUTION) == disco_rl.__version__


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Builds the packages as a wheel would contain them."""
  folder = tmp_path_factory.mktemp('built')
  command = ['egg_info', '--egg-base', str(folder), 'build_py', '--build-lib']
  _run('setup.py', '-q', *command, str(folder / 'lib'))
  return folder / 'lib'


def test_the_wheel_holds_the_package_alone(built: pathlib.Path) -> None:
  assert [path.name for path in built.iterdir()] == ['disco_rl']
  # Folder of the package -> its folder in the repository.
  folders = {'.': _PACKAGE}
  for name in ('configs', 'launch'):
    folders[f'commands/{name}'] = launching.REPOSITORY / name
  expected = {
    folder / path.relative_to(source)
    for folder, source in folders.items()
    for path in source.rglob('*')
    if path.is_file() and '__pycache__' not in path.parts
  }
  installed = built / 'disco_rl'
  assert {pathlib.Path('py.typed'), pathlib.Path('commands/launch/play.py')} < (
    expected
  )
  assert expected == {
    path.relative_to(installed)
    for path in installed.rglob('*')
    if path.is_file()
  }


def test_the_page_of_the_package_links_to_the_repository(
  built: pathlib.Path,
) -> None:
  """An index of packages cannot follow the relative links of the README."""
  (path,) = built.parent.glob('*.egg-info/PKG-INFO')
  text = path.read_text()
  address = 'https://github.com/disco-rl/disco_rl'
  raw = 'https://raw.githubusercontent.com/disco-rl/disco_rl'
  assert f']({address}/blob/main/docs/get-started.md#install)' in text
  assert f']({raw}/main/docs/images/method.svg)' in text
  assert f'git clone {address}\n' in text
  targets = re.findall(r'\]\(([^)]+)\)', text)
  assert len(targets) > 30
  assert not [x for x in targets if not x.startswith('https://')]


# Runs outside the clone, in a folder with packages called configs and launch.
_COMMAND = """
import os, runpy, sys
folder, sys.path[0], *sys.argv[1:] = sys.argv[1:]
os.chdir(folder)
runpy.run_module('disco_rl', run_name='__main__', alter_sys=True)
"""


def test_commands_run_with_what_is_built(
  built: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  for name in ('configs', 'launch'):
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text("raise ImportError('mine')")
  run = lambda *argv: launching.run_python(
    '-c', _COMMAND, str(tmp_path), str(built), *argv
  )
  shown = run('train', '--config=general', '--help')
  assert not shown.stderr
  # This is the variant of configs/evaluate.py, not configs/general.py.
  assert "\n  environment='gridworld/held_out_00'" in shown.stdout
  refused = run('train', '--config=configs/general.py', '--workdir=x')
  assert 'There is no file' in refused.stderr
  assert 'one of general' in refused.stderr
  assert run('evaluate', '--config=general', '--help').stdout == shown.stdout


def test_help_names_no_file_of_a_clone(built: pathlib.Path) -> None:
  for path in (built / 'disco_rl' / 'commands' / 'launch').glob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Constant) and isinstance(node.value, str):
        assert not re.search(
          r'\b(benchmarks|docs|examples|tests)[./]\w', node.value
        ), path


def test_pip_finds_extras_by_what_is_installed() -> None:
  pip, *flags = shlex.split(extras.install('test'))
  # The distribution is on no index.
  said = _run('-m', pip, *flags, '--no-index', '--dry-run')
  assert 'disco-rl-discovery[test]' in said


def _imported(folder: str) -> set[str]:
  """Returns imported packages that are not in the standard library."""
  found = set()
  for path in (launching.REPOSITORY / folder).rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_bytes())):
      if isinstance(node, ast.Import):
        found |= {alias.name.split('.')[0] for alias in node.names}
      elif isinstance(node, ast.ImportFrom) and not node.level:
        assert node.module is not None
        found.add(node.module.split('.')[0])
  return found - sys.stdlib_module_names - {'configs', 'disco_rl', 'launch'}


def test_the_import_contract_of_suites_has_every_suite() -> None:
  contracts = _pyproject()['tool']['importlinter']['contracts']
  (contract,) = (x for x in contracts if x['id'] == 'suites')
  suites = {
    path.relative_to(launching.REPOSITORY).with_suffix('').as_posix()
    for path in (_PACKAGE / 'environments').glob('*/*.py')
    if re.search('^FAMILIES\\b', path.read_text(encoding='utf-8'), re.MULTILINE)
  }
  # The package wraps environments of users in Gymnasium's interface.
  suites.remove('disco_rl/environments/host/gymnasium_adapter')
  assert {x.replace('/', '.') for x in suites} == {
    *contract['forbidden_modules']
  }


def _pyproject() -> dict[str, Any]:
  return tomllib.loads((launching.REPOSITORY / 'pyproject.toml').read_text())


def _required() -> Iterator[tuple[str, str]]:
  """Yields normalized names of distributions, and their extras or ''."""
  project = _pyproject()['project']
  extras = project['optional-dependencies']
  for extra, names in {'': project['dependencies'], **extras}.items():
    for name in names:
      yield _normalize(re.match(r'[\w.-]+', name)[0]), extra


def _normalize(name: str) -> str:
  return name.lower().replace('_', '-')


# Package -> its distribution, if the names differ. Metadata would not tell for
# suites that are not installed.
_DISTRIBUTIONS = {
  'absl': 'absl-py',
  'ale_py': 'ale-py',
  'haiku': 'dm-haiku',
  'orbax': 'orbax-checkpoint',
  'PIL': 'pillow',
}


def _distributions(folder: str) -> set[str]:
  names = _imported(folder) - UNPUBLISHED
  return {_normalize(_DISTRIBUTIONS.get(name, name)) for name in names}


def test_all_that_is_imported_is_required() -> None:
  of_users = {name for name, extra in _required() if extra not in DEVELOPMENT}
  assert _distributions('disco_rl') <= of_users


def test_core_holds_nothing_that_only_tests_import() -> None:
  core = {name for name, extra in _required() if not extra}
  imported = set.union(
    *(_distributions(folder) for folder in ('disco_rl', 'launch', 'configs'))
  )
  assert core <= imported


def test_what_workflows_run_is_pinned_and_releases_are_tested() -> None:
  """Tags and branches of other projects can be moved."""
  root = launching.REPOSITORY
  workflows = root / '.github' / 'workflows'
  paths = sorted(workflows.glob('*.yml'))
  assert len(paths) == 4
  for path in paths:
    text = path.read_text(encoding='utf-8')
    for action in re.findall(r'uses: (\S+)', text):
      assert re.search(r'@[0-9a-f]{40}$|^\./', action), (path, action)
    for tool in re.findall(r'pipx run (\S+)', text):
      assert '==' in tool, (path, tool)
  release = (workflows / 'release.yml').read_text(encoding='utf-8')
  assert 'uses: ./.github/workflows/test.yml' in release
  assert 'needs: [build, test]' in release
  assert re.search(
    r'^FROM \S+@sha256:[0-9a-f]{64}$',
    (root / 'Dockerfile').read_text(encoding='utf-8'),
    re.MULTILINE,
  )


def test_each_night_all_tests_meet_the_newest_jax_and_its_defaults() -> None:
  path = launching.REPOSITORY / '.github' / 'workflows' / 'nightly.yml'
  text = path.read_text(encoding='utf-8')
  assert re.search(r"schedule:\n +- cron: '\d+ \d+ \* \* \*'", text)
  newest, default = re.split(r'\n  (?=default-compiler-options:\n)', text)
  assert 'pip install --upgrade --pre jax jaxlib\n' in newest
  assert "JAX_DISABLE_MOST_OPTIMIZATIONS: 'false'" in default
  for job in (newest, default):
    assert re.search(r'\.ci/run test-all$', job, re.MULTILINE)
  # Processes that tests start compile as the tests do.
  assert 'JAX_DISABLE_MOST_OPTIMIZATIONS' not in launching.OF_PROCESSES
