"""Launchers end with one line for what is not a bug of theirs, and soon."""

from collections.abc import Iterator
import json
import pathlib
import re
import types
from typing import Any
from unittest import mock

from absl.testing import flagsaver
import gymnasium
import jax
import launching
import pytest

from configs import disco103
from configs import quickstart
from disco_rl.environments.host import adapters
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import digests
from disco_rl.runtime import sharding
from disco_rl.training import learning_curves
from launch import compare
from launch import errors
from launch import meta_train
from launch import train

QUICKSTART = f'--config={quickstart.__file__}'
DISCO103 = f'--config={disco103.__file__}'


@pytest.fixture(autouse=True)
def _flags_as_before() -> Iterator[None]:
  with flagsaver.flagsaver():
    yield


@pytest.mark.parametrize(
  ('error', 'message'),
  [
    (adapters.HostEnvironmentError('Pong hangs'), '^error: Pong hangs$'),
    (OSError(28, 'No space left'), 'No space left'),
    (KeyError('x'), "^error: 'x'$"),
    (
      jax.errors.JaxRuntimeError(
        'RESOURCE_EXHAUSTED: Out of memory: 9 GiB.\nx'
      ),
      '^error: Out of memory: RESOURCE.* 9 GiB. Likely .* lower --config.',
    ),
    (MemoryError('Unable to allocate 2 TiB'), 'Unable .* lower .*replay_capac'),
  ],
)
def test_expected_errors_take_one_line(error: Exception, message: str) -> None:
  with (
    pytest.raises(SystemExit, match=message) as ended,
    errors.in_one_line(KeyError),
  ):
    raise error
  launching.message_of(ended.value)


@pytest.mark.parametrize(
  'error', [ZeroDivisionError('a bug'), jax.errors.JaxRuntimeError('INTERNAL')]
)
def test_bugs_show_their_traceback(error: Exception) -> None:
  with pytest.raises(type(error)), errors.in_one_line():
    raise error


class Unusable(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(-1, 1, (2,))
  action_space = gymnasium.spaces.Discrete(2)

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    del seed, options
    raise KeyError('no such level')


def unmakeable() -> Any:
  raise TypeError('no such asset')


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      Unusable,
      "Unusable-v0 .* at step 0 .* 0 of 8: KeyError.'no s",
    ),
    (unmakeable, "Unusable-v0 raised when it was made: TypeError.'no such as"),
  ],
)
def test_environments_that_cannot_be_used(
  make: Any, message: str, tmp_path: pathlib.Path
) -> None:
  gymnasium.register('Unusable-v0', make)
  try:
    found = launching.error(
      train,
      tmp_path / 'run',
      f'--config={launching.REPOSITORY}/configs/evaluate.py:cartpole',
      '--config.environment=gymnasium/Unusable-v0',
      '--config.rule=actor_critic',
    )
  finally:
    del gymnasium.registry['Unusable-v0']
  assert re.search(message, found), found
  assert not (tmp_path / 'run').exists()


def test_a_figure_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
  (tmp_path / 'config.json').write_text(
    json.dumps({'environment': 'catch', 'rule': 'disco103'})
  )
  (tmp_path / 'metrics.csv').write_text(
    'update,seed,environment_steps,return\n1,0,2,0.5\n'
  )
  output = tmp_path / 'config.json' / 'figure.png'
  assert f'{output.parent} is a file' in compared(tmp_path, output)
  assert 'must end in .png or .svg' in compared(tmp_path, tmp_path / 'a.pdf')


def compared(workdir: pathlib.Path, output: pathlib.Path) -> str:
  """The error of a comparison."""
  return launching.error_of_main(compare, f'{workdir}', output=f'{output}')


def test_folders_without_curves(tmp_path: pathlib.Path) -> None:
  output = tmp_path / 'figure.png'
  (run := tmp_path / 'a' / 'b').mkdir(parents=True)
  found = compared(tmp_path / 'none', output)
  assert 'none holds no run of disco-rl train: ' in found
  assert 'none does not exist. Likely' in found
  assert 'it has no config.json' in compared(tmp_path, output)
  (run / 'config.json').write_text('{"environment": "catch", "rule": "x"}')
  assert f'folders of runs: name one, such as {run}' in compared(
    tmp_path, output
  )
  found = compared(run, output)
  assert 'metrics.csv does not exist. Likely the run has not logged' in found
  (run / 'config.json').write_text('{"environments": "catch"}')
  assert "config.json lacks 'environment'" in compared(run, output)


def test_only_agents_of_one_experiment_share_a_label(
  tmp_path: pathlib.Path,
) -> None:
  first = {'environment': 'catch', 'rule': 'mine', 'seed': 0, 'seeds': 2}
  refused = {
    'environment is .gridworld., was .catch.': {'environment': 'gridworld'},
    'discount is 0.5, was None': {'seed': 2, 'discount': 0.5},
    'rule is .other., was .mine.': {'seed': 2, 'rule': 'other'},
    'an agent of seed 1,': {'seed': 1},
  }
  for i, changes in enumerate(({}, *refused.values(), {'seed': 2})):
    folder = tmp_path / str(i)
    folder.mkdir()
    (folder / 'config.json').write_text(json.dumps({**first, **changes}))
    (folder / 'metrics.csv').write_text(
      'update,seed,environment_steps,return\n1,0,2,0.5\n1,1,2,0.5\n'
    )
  folders = [f'{tmp_path}/{i}' for i in range(len(refused) + 2)]
  flags = {'output': f'{tmp_path / "figure.png"}', 'labels': ['x', 'x']}
  for folder, message in zip(folders[1:], refused):
    found = launching.error_of_main(compare, folders[0], folder, **flags)
    assert re.search(message, found), found
  (tmp_path / 'link').symlink_to(folders[0])
  found = launching.error_of_main(
    compare, folders[0], f'{tmp_path}/link', **{**flags, 'labels': ['x', 'y']}
  )
  assert 'are the same folder: name it once' in found
  # Two runs of other seeds are one curve.
  curve = mock.Mock()
  with mock.patch.object(learning_curves, 'learning_curves', curve):
    launching.call_main(compare, folders[0], folders[-1], **flags)
  assert curve.call_args.args[0]['x'][1].shape == (4, 1)


def test_runs_of_two_versions_share_a_label(tmp_path: pathlib.Path) -> None:
  """What a run of version 0.2 does not name is what that version did."""
  kept = {'environment': 'catch', 'rule': 'mine', 'seeds': 1}
  unsaid = {
    'activation': 'relu',
    'evaluate_episodes': 10,
    'evaluate_every': 0,
    'final_relu': False,
    'max_gradient_norm': 0.0,
    'min_replay_batches': 0.0,
    'normalize_observations': False,
    'normalize_rewards': False,
    'separate_torsos': False,
    'num_environments': 12,
  }
  configs = {
    'old': {**kept, 'seed': 0, 'version': '0.2.0'},
    'new': {**kept, **unsaid, 'seed': 1, 'version': '0.3.0'},
    'other': {
      **kept,
      **unsaid,
      'seed': 1,
      'version': '0.3.0',
      'activation': 'tanh',
    },
  }
  for name, config in configs.items():
    (folder := tmp_path / name).mkdir()
    (folder / 'config.json').write_text(json.dumps(config))
    (folder / 'metrics.csv').write_text(
      f'update,seed,environment_steps,return\n1,{config["seed"]},2,0.5\n'
    )
  flags = {'output': f'{tmp_path / "figure.png"}', 'labels': ['x', 'x']}
  old, new, other = (f'{tmp_path / name}' for name in configs)
  curve = mock.Mock()
  with mock.patch.object(learning_curves, 'learning_curves', curve):
    launching.call_main(compare, old, new, **flags)
  assert curve.call_args.args[0]['x'][1].shape == (2, 1)
  found = launching.error_of_main(compare, old, other, **flags)
  assert (
    'other settings' in found and "activation is 'tanh', was 'relu'." in found
  )


def test_comparisons_say_what_their_intervals_resample(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  """The means are 0.1 apart, in levels that are 1 apart."""

  def run(rule: str, environment: str, returns: tuple[float, float]) -> str:
    folder = tmp_path / f'{rule}_{environment.replace("/", "_")}'
    folder.mkdir()
    config = {'environment': environment, 'rule': rule, 'seeds': 2}
    (folder / 'config.json').write_text(json.dumps(config))
    rows = [f'1,{i},2,{x}' for i, x in enumerate(returns)]
    header = 'update,seed,environment_steps,return'
    (folder / 'metrics.csv').write_text('\n'.join([header, *rows, '']))
    return f'{folder}'

  easy, hard = 'catch/6x5', 'catch/9x4'
  mine, others = (
    [run(rule, easy, (x + 0.4, x + 0.5)), run(rule, hard, (x - 0.6, x - 0.5))]
    for rule, x in (('mine', 0.1), ('other', 0.0))
  )

  def compared(*folders: str, resampled: str, labels: str = '') -> list[str]:
    flags = {'output': f'{tmp_path / "figure.png"}', 'resampled': resampled}
    if labels:
      flags['labels'] = labels.split(',')
    launching.call_main(compare, *folders, **flags)
    return capsys.readouterr().out.splitlines()

  first, own, _, difference, _ = compared(
    mine[0], others[0], resampled='agents'
  )
  assert 'Mean return, [95% interval] over agents' in first
  assert '0.55 [0.5, 0.6]' in own and '2 agents in 1 environments' in own
  assert difference.startswith('mine minus other: 0.1 [')
  # With other levels the means move far, and their difference does not.
  first, own, _, difference, _ = compared(*mine, *others, resampled='levels')
  assert 'Mean score, [95% interval] over levels' in first
  low, high = map(float, re.findall(r'[-\d.]+(?=[,\]])', own)[:2])
  assert high - low > 0.4
  low, high = map(float, re.findall(r'[-\d.]+(?=[,\]])', difference))
  assert high - low < 0.2
  # Discoveries 0.55 and 0.45, by Student's t with one degree of freedom.
  first, own, given, difference, _ = compared(
    *(mine[0], others[0], run('hand', easy, (0.2, 0.2))),
    resampled='discoveries',
    labels='recipe,recipe,hand',
  )
  assert 'over discoveries' in first and '[one: no interval]' in given
  assert '0.5 [-0.135, 1.14]' in own and 'each of 2 discoveries' in own
  assert difference == 'recipe minus hand: 0.3 [-0.335, 0.935]'
  lines = compared(
    *(*mine, others[0], run('other', 'catch/7x6', (0.0, 0.0))),
    resampled='levels',
  )
  assert 'mine and other have other environments: no difference.' in lines


def test_curves_of_changed_metrics_are_not_compared(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'metrics.csv'
  path.write_text('update,seed,environment_steps,return\n1,0,2,0.5\n')
  config = '{"environment": "catch", "rule": "ppo"}'
  (tmp_path / 'config.json').write_text(config)
  digests.write_summary(tmp_path, {'updates': 1})
  path.write_text(path.read_text().replace('0.5', '0.9'))
  found = compared(tmp_path, tmp_path / 'figure.png')
  assert f'error: {path} has changed since' in found


def test_the_folder_is_checked_before_anything_is_made(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  make = mock.Mock(side_effect=AssertionError('made'))
  monkeypatch.setattr(meta_trainer, 'MetaTrainer', make)
  (tmp_path / 'config.json').write_text('{"agents": 1}')
  found = launching.error(meta_train, tmp_path, QUICKSTART)
  assert 'holds a run with other settings: ' in found
  assert 'delete that folder to start over' in found
  assert [path.name for path in tmp_path.iterdir()] == ['config.json']


@pytest.mark.parametrize(
  'name', ['rule.npz', 'newest_rule.npz', 'initial_rule.npz']
)
def test_a_discovery_does_not_overwrite_its_start(
  name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  make = mock.Mock(side_effect=AssertionError('made'))
  monkeypatch.setattr(meta_trainer, 'MetaTrainer', make)
  rule = tmp_path / '..' / tmp_path.name / name
  found = launching.error(
    meta_train, tmp_path, QUICKSTART, f'--config.rule={rule}'
  )
  assert f'rule={rule} is a file that this run writes itself' in found


def test_the_division_of_agents_is_checked_before_anything_is_made(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  mesh = types.SimpleNamespace(shape={sharding.AGENTS: 2, sharding.BATCH: 1})
  monkeypatch.setattr(sharding, 'make_mesh', lambda _: mesh)
  make = mock.Mock(side_effect=AssertionError('made'))
  monkeypatch.setattr(build, 'make_rule', make)
  found = launching.error(
    meta_train,
    tmp_path / 'run',
    QUICKSTART,
    '--config.agents=7',
    '--config.cpu_devices=1',
  )
  assert '7 agents in all cannot be divided equally among 2 devices' in found


def test_a_command_without_the_suite_that_is_missing_is_offered(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  def validate(name: str) -> None:
    if name.startswith('dmlab/'):
      raise ImportError('Build DeepMind Lab.')

  monkeypatch.setattr(build.registry, 'validate', validate)
  found = launching.error(meta_train, tmp_path, DISCO103)
  assert found.count('Build DeepMind Lab.') == 1
  settings = '--config.environments=atari57,procgen16 --config.agents=146'
  command = f'disco-rl meta-train --workdir={tmp_path} {DISCO103}'
  assert found.endswith(f'{command} {settings}')
