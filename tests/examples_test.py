"""The programs in examples/, and what README.md shows of the library."""

from collections.abc import Iterator
import pathlib
import re
import sys

import jax
import numpy as np
import pytest

import disco_rl
from disco_rl.update_rules import weights
from examples import cartpole
from examples import increasing_digits

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope='module')
def quick_compilation() -> Iterator[None]:
  """Programs run for moments here: to optimise them would take longer."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


def _code_of_readme() -> list[str]:
  """Blocks of Python of the section on the library."""
  text = (_REPOSITORY / 'README.md').read_text()
  section = text.split('## In your own code\n')[1].split('\n## ')[0]
  return re.findall('```python\n(.*?)```', section, re.DOTALL)


def test_the_readme_needs_no_more_than_ten_lines() -> None:
  first = _code_of_readme()[0]
  assert 'disco103' in first
  assert len([line for line in first.splitlines() if line]) <= 10


def test_the_code_of_the_readme_runs(
  disco103_path: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(disco103_path.parent))
  monkeypatch.chdir(tmp_path)
  names: dict = {}
  for block in _code_of_readme():
    exec(compile(block, 'README.md', 'exec'), names)
  assert np.isfinite(names['metrics']['loss']).all()
  assert names['action'] in (0, 1)
  assert [path.name for path in tmp_path.iterdir()] == ['cartpole.npz']


def test_cartpole(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  path = tmp_path / 'agent.npz'
  flags = ['--rule=policy_gradient', '--updates=2', f'--save={path}']
  monkeypatch.setattr(sys, 'argv', ['cartpole', *flags])
  cartpole.main()
  assert path.is_file()
  output = capsys.readouterr().out
  assert re.search(r'^update 2: return \d', output)
  assert re.search(r'^mean return of ten episodes: \d', output, re.MULTILINE)


def test_rewards_of_digits() -> None:
  digits = np.array([[3, 5, 5, 9, 0, 2]]).T
  rollout = increasing_digits.judge(
    digits.astype(np.int32), np.zeros((6, 1, increasing_digits.NUM_DIGITS))
  )
  np.testing.assert_array_equal(rollout.reward[:, 0], [0, 1, 0, 1, 0])
  np.testing.assert_array_equal(rollout.observation[:, 0], [10, 3, 5, 5, 9, 0])
  np.testing.assert_array_equal(rollout.is_terminal[:, 0], [0, 0, 0, 0, 1])
  assert increasing_digits.accuracy(rollout) == 0.5


def test_the_transformer_learns() -> None:
  rule = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=4.0)
  network, params, accuracies = increasing_digits.train(
    rule, seed=0, curriculum=((4, 100),), learning_rate=1e-2
  )
  assert np.mean(accuracies[:5]) < 0.55
  assert np.mean(accuracies[-5:]) > 0.8
  # What was sampled is what is learnt from: no token sees a later one.
  rollout = increasing_digits.write(network, params, jax.random.key(1), 4, 32)
  outputs, _ = network.unroll(params, rollout)
  np.testing.assert_allclose(
    outputs['logits'], rollout.logits, rtol=1e-3, atol=1e-4
  )
