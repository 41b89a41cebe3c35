"""Tests of disco_rl/api/agent_files.py; of agents: policy_test.py."""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl.api import agent_files
from disco_rl.runtime import npz


class TestFiles:
  tree = {'a': jnp.arange(3), 'key': jax.random.key(1), 'b': (jnp.zeros(2),)}

  def test_round_trip(self, tmp_path: pathlib.Path) -> None:
    agent_files.save(tmp_path / 'x.npz', small.DESCRIPTION, self.tree)
    like = jax.eval_shape(lambda: jax.tree.map(jnp.zeros_like, {**self.tree}))
    loaded = agent_files.load(tmp_path / 'x.npz', like)
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
    with pytest.raises(FileNotFoundError):
      agent_files.load(path, self.tree)
    with pytest.raises(ValueError, match='must end in .npz'):
      agent_files.save(tmp_path / 'x', small.DESCRIPTION, self.tree)
    path.write_bytes(b'PK')
    with pytest.raises(ValueError, match='x.npz is not an npz archive'):
      agent_files.load(path, self.tree)


def test_files_of_other_versions_are_refused(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'policy.npz'
  agent_files.save_policy(path, small.DESCRIPTION, {'w': jnp.ones(2)})
  found, arrays = agent_files.read(path)
  assert found == small.DESCRIPTION
  np.testing.assert_array_equal(arrays["['w']"], [1, 1])
  for text, message in (
    ({'version': 2}, 'has version 2 of the format, .* reads version 1'),
    ({'version': 1, 'size': 3}, 'description of the agent is damaged'),
    ({}, 'does not contain an agent'),
  ):
    note = {**dataclasses.asdict(small.DESCRIPTION), **text} if text else text
    npz.write(path, {'w': np.ones(2)}, note)
    with pytest.raises(npz.ArchiveError, match=message):
      agent_files.read(path)
