"""Tests of disco_rl/api/agent_files.py; of agents: policy_test.py."""

import dataclasses
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

import disco_rl
from disco_rl import types
from disco_rl.api import agent_files
from disco_rl.runtime import npz


class TestFiles:
  tree = {'a': jnp.arange(3), 'key': jax.random.key(1), 'b': (jnp.zeros(2),)}

  def test_round_trip(self, tmp_path: pathlib.Path) -> None:
    agent_files.save(tmp_path / 'x.npz', small.DESCRIPTION, self.tree)
    like = jax.eval_shape(lambda: jax.tree.map(jnp.zeros_like, {**self.tree}))
    found, loaded = agent_files.load(tmp_path / 'x.npz', like)
    assert dataclasses.replace(found, settings={}) == small.DESCRIPTION
    assert loaded['key'].dtype == self.tree['key'].dtype
    data = lambda tree: {**tree, 'key': jax.random.key_data(tree['key'])}
    jax.tree.map(np.testing.assert_array_equal, data(loaded), data(self.tree))

  @pytest.mark.parametrize(
    ('changes', 'message'),
    [
      (
        {'c': jnp.zeros(1)},
        r"lacks \['c'\].* another environment, rule or settings",
      ),
      ({'b': ()}, r"has \['b'\]\[0\].* another environment, rule or settings"),
      ({'a': jnp.arange(4)}, r"has \['a'\] of int32\[3\] instead of int32\[4"),
      ({'a': jnp.zeros(3)}, r'of int32\[3\] instead of float32\[3\]'),
    ],
  )
  def test_another_tree_is_named(
    self, changes: dict[str, Any], message: str, tmp_path: pathlib.Path
  ) -> None:
    agent_files.save(tmp_path / 'x.npz', small.DESCRIPTION, self.tree)
    with pytest.raises(ValueError, match=message):
      agent_files.load(tmp_path / 'x.npz', {**self.tree, **changes})

  def test_other_files(self, tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'x.npz'
    for read in (agent_files.read, lambda x: agent_files.load(x, self.tree)):
      with pytest.raises(FileNotFoundError, match='x.npz does not .*mistyped'):
        read(path)
      with pytest.raises(IsADirectoryError, match='disco_rl.load_agent loads'):
        read(tmp_path)
    with pytest.raises(ValueError, match='must end in .npz'):
      agent_files.save(tmp_path / 'x', small.DESCRIPTION, self.tree)
    path.write_bytes(b'PK')
    with pytest.raises(ValueError, match='x.npz is not an npz archive'):
      agent_files.load(path, self.tree)


def test_files_of_other_versions_are_refused(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'policy.npz'
  agent_files.save_policy(path, small.DESCRIPTION, {'w': jnp.ones(2)})
  found, arrays = agent_files.read(path)
  # A setting that a file lacks has the value of then.
  assert found.settings['num_environments'] == 12
  assert dataclasses.replace(found, settings={}) == small.DESCRIPTION
  np.testing.assert_array_equal(arrays["['w']"], [1, 1])
  for text, message in (
    ({'version': 3}, 'has version 3 of the format, .* reads versions 1 to 2'),
    ({'version': 1, 'size': 3}, 'description of the agent is damaged'),
    ({}, 'does not contain an agent'),
  ):
    note = {**dataclasses.asdict(small.DESCRIPTION), **text} if text else text
    npz.write(path, {'w': np.ones(2)}, note)
    with pytest.raises(npz.ArchiveError, match=message):
      agent_files.read(path)


def write(path: pathlib.Path, **changes: Any) -> None:
  """Writes the file of an agent whose description has some changes."""
  note = {**dataclasses.asdict(small.DESCRIPTION), 'version': 1, **changes}
  npz.write(path, {'w': np.ones(2)}, note)


def test_a_file_cannot_import_a_module(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Importing runs code: only what the user names is imported."""
  path, canary = tmp_path / 'x.npz', tmp_path / 'canary'
  code = f'import pathlib; pathlib.Path({str(canary)!r}).touch()'
  (tmp_path / 'stranger.py').write_text(code)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.chdir(tmp_path)
  name = 'gymnasium/stranger:X-v0'
  write(path, environment=name)
  with pytest.raises(ValueError, match='name in a file never.*`import str'):
    disco_rl.load_policy(path)
  assert not canary.exists()
  # This one is the user's.
  with pytest.raises(ValueError, match='Unknown environment'):
    disco_rl.load_policy(path, environment=name)
  assert canary.exists()
  del sys.modules['stranger']


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'seed': 'one'}, "seed is 'one'"),
    ({'seed': 1.5}, 'seed is 1.5'),
    ({'seed': True}, 'seed is True'),
    ({'seed': 2**70}, f'seed={2**70} must be a whole number'),
    ({'seed': -1}, 'seed=-1 must be at least 0'),
    ({'settings': 'text'}, "settings is 'text'"),
    ({'environment': 3}, 'environment is 3'),
    ({'preprocessing': []}, r'preprocessing is \[\]'),
    ({'state_outputs': [3]}, r'state_outputs is \[3\]'),
    ({'state_outputs': {'v': -1}}, 'state_outputs.v=-1 must be 0 to 65,536'),
    ({'action_outputs': {'q': 'x'}}, "action_outputs.q='x' must be a whole"),
    ({'action_outputs': {'q': 10**9}}, 'action_outputs.q=.* 0 to 65,536'),
  ],
)
def test_descriptions_of_something_else_are_refused(
  changes: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'x.npz'
  write(path, **changes)
  with pytest.raises(npz.ArchiveError, match=f'x.npz: .*damaged: ({message})'):
    disco_rl.load_policy(path)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_agents_with_numbers_that_are_not_finite_are_refused(
  bad: float, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'x.npz'
  params = {'net': {'b': jnp.zeros(2), 'w': jnp.array([[1.0, bad]])}}
  message = r"x.npz has 1 values of 2 in \['net'\]\['w'\] that are not finite"
  agent_files.save_policy(path, small.DESCRIPTION, params)
  _, arrays = agent_files.read(path)
  with pytest.raises(npz.ArchiveError, match=message):
    agent_files.rebuild(path, arrays, params)
  # As `Trainer.save` writes it; the return before the first episode is NaN.
  whole = {
    agent_files.STATE: _State(_Learner(params)),
    'return': jnp.array(bad),
  }
  agent_files.save(path, small.DESCRIPTION, whole)
  with pytest.raises(npz.ArchiveError, match=message):
    agent_files.load(path, whole)


@types.record
class _Learner:
  params: Any


@types.record
class _State:
  learner: _Learner


def changed(**changes: Any) -> agent_files.Description:
  settings = {**small.DESCRIPTION.settings, 'learning_rate': 0.1}
  return dataclasses.replace(
    small.DESCRIPTION, **{'settings': settings, 'rule_digest': 5, **changes}
  )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'environment': 'catch/5x3'}, "environment was 'catch', is 'catch/5x3'"),
    ({'settings': {'learning_rate': 0.5}}, 'learning_rate was 0.1, is 0.5[.]'),
    ({'rule': 'ppo', 'rule_digest': None}, "rule was 'actor_critic', is 'ppo'"),
    (
      {'rule': 'moved.npz', 'rule_digest': 6},
      'parameters of the rule was 5, is',
    ),
    ({'rule_settings': {'discount': 0.5}}, 'rule.discount was 0.9, is 0.5'),
    (
      {'preprocessing': {'atari': {'height': 4, 'width': 84}}},
      'preprocessing.atari.height was 84, is 4[.]',
    ),
  ],
)
def test_an_agent_of_another_kind_is_refused(
  changes: dict[str, Any], message: str
) -> None:
  found = changed(rule_settings={'discount': 0.9})
  agent_files.compare('x.npz', found, found)
  with pytest.raises(npz.ArchiveError, match=f'x.npz .*: .*{message}'):
    agent_files.compare('x.npz', found, dataclasses.replace(found, **changes))


@pytest.mark.parametrize(
  ('there', 'here', 'message'),
  [
    ({'seed': 1}, {'seed': 2}, 'seed was 1, is 2'),
    (
      {'environment': None, 'objects': {'environment': 'Maze'}},
      {'environment': None, 'objects': {'environment': 'Hall'}},
      "environment was 'Maze', is 'Hall'",
    ),
    (
      {'environment': None, 'objects': {'environment': 'Maze'}},
      {},
      "environment was 'Maze', is 'catch'",
    ),
    # The file of a rule was moved; version 0.2 wrote fewer facts.
    ({'rule': 'a.npz'}, {'rule': 'b.npz'}, None),
    ({'environment': None, 'rule_digest': None}, {}, None),
  ],
)
def test_what_may_differ_is_reported(
  there: dict[str, Any],
  here: dict[str, Any],
  message: str | None,
  capsys: pytest.CaptureFixture[str],
) -> None:
  agent_files.compare('x.npz', changed(**there), changed(**here))
  printed = capsys.readouterr().err
  assert (message is None) == (printed == '')
  if message is not None:
    assert printed.startswith(f'warning: x.npz: {message}. ')
    assert printed.count('\n') == 1
