"""What earlier versions wrote: settings, folders of runs, files of agents."""

from collections.abc import Mapping
import pathlib
import re
import tarfile
from typing import Any

import launching
import numpy as np
import pytest
import train_runs

import disco_rl
from disco_rl import config as config_lib
from disco_rl.meta_training import config as meta_config
from disco_rl.runtime import checkpointing
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import npz
from disco_rl.runtime import versions
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry
from disco_rl.update_rules import weights
from launch import meta_train

DATA = launching.REPOSITORY / 'tests' / 'data'
# The settings with which version 0.2.0 made the runs in tests/data.
AGENT = {
  'unroll_length': 3,
  'batch_size': 2,
  'num_environments': 1,
  'replay_capacity': 2,
  'hidden_sizes': (2,),
  'action_model_lstm': 2,
  'action_model_head': 2,
}
TRAINING = {
  **AGENT,
  'environment': 'catch/2x2',
  'rule': 'actor_critic',
  'seeds': 1,
  'updates': 4,
  'log_every': 2,
  'checkpoint_every': 4,
  'num_bins': 3,
  # As in configs/evaluate.py:catch of then.
  'sizes': 'paper',
  'on_policy_share': 0.0,
}
DISCOVERY = {
  **AGENT,
  'environments': 'catch/2x2',
  'agents': 1,
  'cpu_devices': 1,
  'meta_decay_steps': 0,
  'validation_trajectories': 1,
  'on_policy_share': 0.5,
  'num_bins': 3,
  'meta_value_hidden_sizes': (2,),
  'rule_prediction_size': 0,
  'aux_pi_cost': 0.0,
  'rule_lstm_size': 2,
  'rule_meta_rnn_size': 2,
  'inner_updates': 1,
  'rule_policy_channels': (2,),
  'rule_policy_target_channels': (2,),
  'held_out_environments': 'catch/2x2',
  'held_out_every': 1,
  'held_out_updates': 1,
  'held_out_seeds': 1,
  'meta_steps': 2,
  'checkpoint_every': 2,
  'keep_checkpoints': 1,
}


def flags(
  config: str, settings: Mapping[str, Any], **changes: Any
) -> tuple[str, ...]:
  return (
    f'--config={launching.REPOSITORY}/configs/{config}',
    *(f'--config.{k}={x}' for k, x in {**settings, **changes}.items()),
  )


@pytest.fixture
def old(tmp_path: pathlib.Path) -> pathlib.Path:
  """Runs and agents of version 0.2.0."""
  with tarfile.open(DATA / 'version_0.2.0.tar.xz') as archive:
    archive.extractall(tmp_path / 'old', filter='data')
  return tmp_path / 'old'


# Settings.


def flat(settings: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
  """Flattens settings to names such as preprocessing.atari.height."""
  found: dict[str, Any] = {}
  for name, value in settings.items():
    if isinstance(value, Mapping):
      found |= flat(value, f'{prefix}{name}.')
    else:
      found[f'{prefix}{name}'] = value
  return found


def defaults(*sections: Mapping[str, list[config_lib.Setting]]) -> Any:
  return {
    setting.name: setting.default
    for section in sections
    for settings in section.values()
    for setting in settings
  }


PRESENT = {
  'evaluate': lambda: defaults(
    config_lib.sections(training_config.TrainingConfig),
    config_lib.sections(*registry.classes(), nested=False),
  ),
  'meta_train': lambda: defaults(
    config_lib.sections(meta_config.MetaTrainingConfig)
  ),
}


@pytest.mark.parametrize('kind', PRESENT)
@pytest.mark.parametrize(
  'path', sorted(DATA.glob('settings_*.json')), ids=lambda path: path.stem
)
def test_changes_of_settings_are_recorded(
  path: pathlib.Path, kind: str, tmp_path: pathlib.Path
) -> None:
  """The settings are those of each earlier version, with its defaults."""
  snapshot = json_files.read(path)
  # As JSON has them.
  json_files.write(tmp_path / 'now.json', PRESENT[kind]())
  now = json_files.read(tmp_path / 'now.json')
  then = snapshot[kind]
  version = None if snapshot['version'] == '0.2.0' else snapshot['version']
  upgraded = flat(versions.upgrade(then, version, now))
  # What a file has that sets nothing but leaves all mappings empty.
  empty = {name: {} for name, x in then.items() if isinstance(x, Mapping)}
  former = flat(versions.upgrade(empty, version, now))
  new = {*flat(now)} - {*upgraded}
  assert not new, (
    f'Enter in versions.CHANGES the values with which version {version} ran '
    f'before it had these settings: {new}.'
  )
  other = {
    name: flat(then)[name]
    for name, default in flat(now).items()
    if name in flat(then) and default != flat(then)[name] != former.get(name)
  }
  assert not other, (
    f'Enter in versions.CHANGES these defaults of version {version}: {other}.'
  )
  gone = {*upgraded} - {*flat(now)}
  assert not gone, f'Enter in versions.CHANGES what became of {gone}.'


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> None:
  """Settings that changed in two versions."""
  monkeypatch.setattr(
    versions,
    'CHANGES',
    {
      '0.3.0': versions.Changes(
        added={'size': 5, 'more.deep.size': 6, 'other': 7},
        renamed={'lr': 'learning_rate'},
        removed={'mode': 'mixed'},
      ),
      '0.10.0': versions.Changes(added={'late': [1]}, defaults={'size': 50}),
    },
  )


@pytest.mark.usefixtures('changed')
@pytest.mark.parametrize(
  ('version', 'expected'),
  [
    (None, {'learning_rate': 0.5, 'more': {'deep': {'size': 6}}, 'size': 5}),
    (
      '0.3.0.dev0+1a2b.changed',
      {'learning_rate': 0.5, 'more': {'deep': {'size': 6}}, 'size': 5},
    ),
    ('0.3.0', {'lr': 0.5, 'mode': 'mixed', 'more': {}, 'size': 50}),
    ('0.10.0', {'lr': 0.5, 'mode': 'mixed', 'more': {}}),
  ],
)
def test_a_missing_setting_has_the_value_of_then(
  version: str | None, expected: dict[str, Any]
) -> None:
  given = {'lr': 0.5, 'mode': 'mixed', 'more': {}}
  known = ('size', 'late', 'more', 'learning_rate')
  if 'size' in expected:
    expected = {**expected, 'late': [1]}
  assert versions.upgrade(given, version, known) == expected
  assert given == {'lr': 0.5, 'mode': 'mixed', 'more': {}}
  size = {'size': 1, **given}
  assert versions.upgrade(size, version, known)['size'] == 1


def test_a_missing_nested_setting_has_its_default(
  tmp_path: pathlib.Path,
) -> None:
  json_files.write(tmp_path / 'config.json', {'a': {'b': {'c': 1}}, 'n': 2})
  complete = lambda _: {'a': {'b': {'c': 5, 'd': 7}}, 'n': 3}
  now: Any = {'a': {'b': {'c': 1, 'd': 7}}, 'n': 2}
  workdirs.check(tmp_path, now, (), complete)
  now['a']['b']['d'] = 8
  with pytest.raises(files.WorkdirError, match="'d': 7.*, is .*'d': 8"):
    workdirs.check(tmp_path, now, (), complete)


@pytest.mark.usefixtures('changed')
def test_a_removed_setting_is_refused(tmp_path: pathlib.Path) -> None:
  config = tmp_path / 'config.json'
  json_files.write(config, {'mode': 'plain'})
  message = "mode='plain' is a setting of version 0.2.0 .* or an earlier one"
  with pytest.raises(files.WorkdirError, match=message):
    workdirs.check(tmp_path, {}, ())
  json_files.write(config, {'mode': 'mixed', 'lr': 0.1})
  workdirs.check(tmp_path, {'learning_rate': 0.1, 'size': 5}, ())
  with pytest.raises(files.WorkdirError, match='size was 5, is 50. It is of'):
    workdirs.check(tmp_path, {'learning_rate': 0.1, 'size': 50}, ())


@pytest.mark.usefixtures('changed')
def test_infinity_is_a_value_like_others() -> None:
  """JSON has no infinity: the files have null for it."""
  assert versions.upgrade({'lr': None}, None) == {
    'learning_rate': None,
    'size': 5,
    'other': 7,
    'late': [1],
  }
  with pytest.raises(ValueError, match='mode=None is a setting of version'):
    versions.upgrade({'mode': None}, None)


# Runs.


def test_a_training_of_version_0_2_continues(
  old: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  workdir = old / 'evaluation'
  before = (workdir / 'metrics.csv').read_text()
  settings = flags('evaluate.py:catch', TRAINING, updates=6)
  train_runs.launch(workdir, *settings)
  assert 'warning' not in capsys.readouterr().err
  # Which the rule does not recommend any longer.
  assert json_files.read(workdir / 'config.json')['learning_rate'] == 0.01
  rows = (workdir / 'metrics.csv').read_text()
  assert rows.startswith(before)
  columns = metrics.read(workdir / 'metrics.csv')
  np.testing.assert_array_equal(columns['update'], [2, 4, 6])
  np.testing.assert_array_equal(columns['environment_steps'], [6, 12, 18])
  written = json_files.read(workdir / 'config.json')
  assert written.pop('version') == '0.2.0'
  train_runs.launch(workdir, *settings)
  assert set(written) >= {'updates', 'warm_up_updates'}

  # A setting that it lacks has its default, and no other value.
  del written['warm_up_updates']
  json_files.write(workdir / 'config.json', written)
  train_runs.launch(workdir, *settings)
  json_files.write(workdir / 'config.json', written)
  assert 'warm_up_updates was 0, is 5.' in train_runs.error(
    workdir, *settings, '--config.warm_up_updates=5'
  )


def test_a_discovery_of_version_0_2_continues(
  old: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  """It has made all of its meta-steps, so that nothing is compiled."""
  workdir = old / 'discovery'
  settings = flags('quickstart.py', DISCOVERY)
  message = launching.error(
    meta_train, workdir, *settings, '--config.budget_steps_per_action=4'
  )
  assert 'budget_steps_per_action was 0, is 4' in message
  assert (
    '. It is of version 0.2.0 of disco_rl or an earlier one. Rep' in message
  )
  for _ in range(2):
    launching.call(meta_train, workdir, *settings)
  errors = capsys.readouterr().err
  assert 'warning' not in errors
  summary = json_files.read(workdir / 'summary.json')
  assert (summary['meta_steps'], summary['environment_steps']) == (2, 12)
  assert cards.read(workdir / 'rule.json').environment_steps == 12
  held_out = metrics.read(workdir / 'held_out' / 'metrics.csv')
  assert held_out['meta_step'].tolist() == [0, 1, 2]


def test_a_setting_of_a_config_does_not_change_an_old_run(
  old: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  """Unlike one that is given."""
  settings = {'budget_steps_per_action': 4, 'meta_steps': 9}
  folder = old / 'discovery'
  kept = workdirs.with_choices(folder, settings, ['meta_steps'])
  assert kept == {'budget_steps_per_action': 0, 'meta_steps': 9}
  assert re.search(
    'begun by version 0.2.0 .* did not have budget_steps_per_action: it '
    'continues with budget_steps_per_action=0, as then, instead of 4',
    capsys.readouterr().err,
  )
  given = workdirs.with_choices(folder, settings, [*settings])
  assert given == settings
  # A folder that lacks a setting because its config did is another matter.
  json_files.write(folder / 'config.json', {})
  agents = {'num_environments': 24}
  assert workdirs.with_choices(folder, agents) == agents


def test_another_structure_is_refused_with_its_version(
  old: pathlib.Path,
) -> None:
  folder = old / 'evaluation' / 'checkpoints'
  like = {'seconds': np.zeros(2)}
  message = (
    'step 4 in .*, written by version 0.2.0 of disco_rl or an earlier one, has '
    rf'another structure than those of version {disco_rl.__version__}: seconds '
    r'has the shape \[\], expected \[2\]. Continue with that version, and'
  )
  with pytest.raises(checkpointing.StructureError, match=message):
    checkpointing.read(folder, like)
  with (
    checkpointing.Checkpointer(folder) as checkpointer,
    pytest.raises(
      checkpointing.StructureError, match='train_state.*, expected None'
    ),
  ):
    checkpointer.restore({'seconds': np.zeros(())})
  assert files.steps(folder) == [4]


@pytest.mark.parametrize(
  ('former', 'present'),
  [
    ('.agents.learner.params.agent.w', '.learner.params.agent.w'),
    ('.agents.replay.added', '.replay.added'),
    ('.agents.episodes.recent', '.acting.episodes.recent'),
    ('.agents.rewards.returns.mean', '.acting.rewards.returns.mean'),
    ('.actors.environment.0', '.acting.actor.environment.0'),
    # The parameters that act on the host.
    ('.actors.environment_torso.w', '.acting.params.environment_torso.w'),
  ],
)
def test_arrays_of_agents_have_new_places(former: str, present: str) -> None:
  for state in ('train_state', 'groups.12', "['train_state']"):
    if state == 'groups.12':
      former = former.replace('agents', 'agent').replace('actors', 'actor')
    for version in (None, '0.3.0.dev0+1a2b'):
      assert versions.array_name(state + former, version) == state + present
      assert versions.array_name(state + present, version) == state + present
    assert versions.array_name(state + former, '0.3.0') == state + former
  assert versions.array_name(former, None) == former


def test_checkpoints_name_the_version(tmp_path: pathlib.Path) -> None:
  with checkpointing.Checkpointer(tmp_path / 'checkpoints') as checkpointer:
    checkpointer.save(1, {'x': np.zeros(3)})
  with pytest.raises(
    checkpointing.StructureError,
    match=f'by version {disco_rl.__version__} of .*: x has the shape .3., exp',
  ):
    checkpointing.read(tmp_path / 'checkpoints', {'x': np.zeros(4)})


# Files.


def test_agents_of_version_0_2_are_read(old: pathlib.Path) -> None:
  # The rule now recommends others.
  then: dict[str, Any] = {
    'learning_rate': 0.005,
    'activation': 'relu',
    'max_gradient_norm': 0.0,
    'separate_torsos': False,
  }
  trainer = disco_rl.Trainer(
    'catch/2x2', 'actor_critic', seed=3, **AGENT, **then
  )
  trainer.load(old / 'agent.npz')
  assert trainer.updates == 2
  for path in (old / 'agent.npz', old / 'policy.npz', old / 'evaluation'):
    assert disco_rl.load_policy(path).description.environment == 'catch/2x2'
  policy = disco_rl.load_policy(old / 'policy.npz')
  for name, leaf in policy.params['agent/~/logits'].items():
    np.testing.assert_array_equal(
      leaf, trainer.policy().params['agent/~/logits'][name]
    )
  card = registry.load_with_card(old / 'discovery' / 'rule.npz').card
  assert card is not None
  assert card.settings['activation'] == 'relu'


def test_files_of_version_0_1_are_refused_with_the_cause(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'agent.npz'
  npz.write(path, {'description': np.zeros(3, np.uint8)}, {})
  with pytest.raises(npz.ArchiveError, match='written by version 0.1 of'):
    disco_rl.load_policy(path)
  npz.write(path, {'x/w': np.zeros(3)}, {})
  with pytest.raises(weights.WeightsError, match='version 0.1 of disco_rl'):
    weights.load(path)


def test_rules_of_a_later_version_name_it(tmp_path: pathlib.Path) -> None:
  note = {'version': 7, 'disco_rl': '9.1.0'}
  npz.write(tmp_path / 'rule.npz', {'x/w': np.zeros(3)}, note)
  with pytest.raises(weights.WeightsError, match='use version 9.1.0 of disco'):
    weights.load(tmp_path / 'rule.npz')
