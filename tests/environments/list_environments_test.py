"""Tests of launch/list_environments.py."""

from collections.abc import Sequence
import json
import sys
from typing import Any
from unittest import mock
import warnings

import conformance
import launching
import pytest

from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import suites
from launch import list_environments


def _print(capsys: Any, arguments: Sequence[str] = (), **values: Any) -> str:
  """What the launcher prints, given values of flags."""
  launching.call_main(list_environments, *arguments, **values)
  return capsys.readouterr().out


def test_every_environment_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
  """Without specs, only those of Gymnasium are made; here, Catch is."""
  catch = registry.make('catch', num_environments=1, seed=0)
  make = mock.Mock(return_value=catch)
  monkeypatch.setattr(registry, 'make', make)
  names = registry.names()
  rows = list_environments.list_rows(None, has_specs=False)
  assert tuple(row['name'] for row in rows) == names
  by_name = {row['name']: row for row in rows}
  assert by_name['catch'] == {
    'name': 'catch',
    'kind': 'device',
    'problem': None,
  }
  assert by_name['atari/pong']['kind'] == 'host'
  made = [call.args[0] for call in make.mock_calls]
  assert made == [name for name in names if name.startswith('gymnasium/')]


@pytest.mark.parametrize(
  'suite, size', [('gridworld57', 57), ('gridworld', 75), ('gridworld/03', 1)]
)
def test_a_suite_a_family_and_a_name_are_listed_alone(
  suite: str, size: int
) -> None:
  rows = list_environments.list_rows(suite, has_specs=False)
  assert len(rows) == size
  assert all(row['name'].startswith('gridworld/') for row in rows)


def test_the_table(capsys: Any) -> None:
  assert _print(capsys, suite='catch', specs=True).splitlines() == [
    'name   kind    observation   num_actions  available',
    'catch  device  float32[8,8]  3            yes',
  ]


def test_a_missing_package_is_explained_once(
  capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
  # What the import system keeps for a module that cannot be imported.
  monkeypatch.setitem(sys.modules, 'ale_py', None)
  title, *rows, note = _print(capsys, suite='atari57').splitlines()
  assert title.split() == ['name', 'kind', 'available']
  assert [row.split()[0] for row in rows] == list(suites.SUITES['atari57'])
  assert all(row.endswith('  no (1)') for row in rows)
  assert note.startswith('no (1): ')
  assert "pip install 'disco-rl-discovery[atari]'" in note


def test_a_missing_gymnasium_is_explained(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setitem(sys.modules, 'gymnasium', None)
  (row,) = list_environments.list_rows('gymnasium', has_specs=False)
  assert "pip install 'disco-rl-discovery[gymnasium]'" in row['problem']


def test_what_cannot_be_made_does_not_hide_the_others(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  pytest.importorskip('gymnasium', reason='the environments are its')
  monkeypatch.setattr(
    registry,
    'names',
    lambda: ('gymnasium/Pendulum-v1', 'gymnasium/FrozenLake-v1'),
  )
  without = list_environments.list_rows('gymnasium', has_specs=False)
  assert 'only Discrete' in without[0]['problem']
  assert without[1]['problem'] is None
  rows = list_environments.list_rows('gymnasium', has_specs=True)
  assert 'only Discrete' in rows[0]['problem']
  assert rows[0]['observation'] is None
  assert rows[1]['problem'] is None
  assert rows[1]['observation'] == 'float32[16]'
  assert rows[1]['num_actions'] == 4


@pytest.mark.parametrize(
  'name', ['catch', 'gridworld/00', 'gymnasium/CartPole-v1', 'nethack/score']
)
def test_kinds_are_those_of_the_environments(name: str) -> None:
  conformance.skip_without(name)
  environment = registry.make(name, num_environments=1, seed=0)
  is_host = isinstance(environment, base.HostEnvironment)
  assert registry.kind(name) == ('host' if is_host else 'device')
  if isinstance(environment, base.HostEnvironment):
    environment.close()


def test_json_by_the_command_line() -> None:
  done = launching.run_python(
    '-m', 'launch.list_environments', '--suite=catch', '--json', '--specs'
  )
  assert done.returncode == 0, done.stderr
  assert json.loads(done.stdout) == [
    {
      'name': 'catch',
      'kind': 'device',
      'problem': None,
      'observation': 'float32[8,8]',
      'num_actions': 3,
    }
  ]


def test_a_wrong_suite_and_wrong_arguments_are_named(capsys: Any) -> None:
  with pytest.raises(SystemExit, match="^error: Unknown .*'atari75'.*atari57"):
    _print(capsys, suite='atari75')
  with pytest.raises(SystemExit, match='^error: Not understood: atari'):
    _print(capsys, ['atari'])


def test_wrong_flags_are_answered_in_one_line() -> None:
  done = launching.run_python('-m', 'launch.list_environments', '--sweet=a')
  assert done.returncode == 1
  assert done.stderr.startswith('error: There is no flag --')
  assert len(done.stderr.splitlines()) == 1


def test_what_packages_say_is_not_shown(
  capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
  make = registry.make

  def noisy(*args: Any, **kwargs: Any) -> Any:
    print('hello')
    print('beware', file=sys.stderr)
    warnings.warn('out of date', stacklevel=1)
    return make(*args, **kwargs)

  monkeypatch.setattr(registry, 'make', noisy)
  (row,) = list_environments.list_rows('catch', has_specs=True)
  assert row['num_actions'] == 3
  assert capfd.readouterr() == ('', '')
