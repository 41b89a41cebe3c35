"""Invalid settings, flags and names raise early errors that name them."""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import math
import pathlib
import re
from typing import Any
from unittest import mock

from absl.testing import flagsaver
import damage
import hypothesis
from hypothesis import strategies as st
import jax
import launching
import numpy as np
import pytest

from configs import evaluate as evaluate_config
from configs import meta_training
from configs import quickstart
from configs import records
from disco_rl import config as config_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.environments import suites
from disco_rl.meta_training import meta_trainer
from disco_rl.training import config as training_config
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry as rule_registry
from disco_rl.update_rules import sources
from launch import meta_train
from launch import train

CONFIG = launching.REPOSITORY / 'configs' / 'evaluate.py'
Settings = Mapping[str, Any]

CATCH = evaluate_config.get_config('catch').to_dict()
# What suits the rule and the task unless it is set.
UNSET = {
  name: {x for x, v in base.items() if v is None}
  for name, base in (
    ('training', evaluate_config.base()),
    ('meta_training', meta_training.base()),
  )
}
DISCOVERY = quickstart.get_config().to_dict()
CONFIGS: Mapping[str, Settings] = {
  'training': {
    **records.defaults(evaluate_config.sections()).to_dict(),
    **{x: v for x, v in CATCH.items() if v is not None},
    'rule': 'actor_critic',  # Not a file to download.
    # They fit together, also if one of them is left to the rule.
    'batch_size': 64,
    'num_environments': 2,
    'replay_capacity': 1024,
    'on_policy_share': 0.0,
  },
  'meta_training': {
    **records.defaults(meta_training.sections()).to_dict(),
    **{x: v for x, v in DISCOVERY.items() if v is not None},
    'environments': 'catch/4x3',
  },
}
EACH = [(name, s) for name, settings in CONFIGS.items() for s in settings]

# Values that no setting may have.
NEVER = (
  *(None, math.nan, -math.inf, 10**400, 1e300, 1j, b'x', {}, object()),
  *((None,), (0.5,), (math.nan,), ((64,),)),
)
# Weights of losses may have any sign.
COSTS = {name for c in CONFIGS.values() for name in c if name.endswith('_cost')}
MAY_BE_ZERO = COSTS | {
  *('seed', 'core_lstm', 'on_policy_share', 'discount', 'lambda_'),
  *('warm_up_updates', 'decay_updates', 'meta_decay_steps', 'weight_decay'),
  *('rule_prediction_size', 'rule_meta_rnn_size', 'rule_transformer_layers'),
  *('torso_chunk_size', 'moments_decay', 'target_decay'),
  *('meta_value_moments_decay', 'max_gradient_norm', 'min_replay_batches'),
  *('budget_steps_per_action', 'held_out_patience', 'evaluate_every'),
  'steps',  # The updates count then.
}
MAY_BE_MINUS_ONE = COSTS | {'torso_chunk_size'}
MAY_BE_INFINITE = {
  *('max_abs_update', 'max_meta_gradient_norm', 'checkpoint_seconds'),
}
FRACTIONS = {'on_policy_share', 'discount', 'lambda_'}
# Names, which are looked up only when the run is built.
LISTS = {'environments', 'held_out_environments'}
TEXTS = {'environment', 'environments', 'held_out_environments', 'rule'}


@pytest.fixture(autouse=True)
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
  fail = mock.Mock(side_effect=AssertionError('a program is compiled'))
  monkeypatch.setattr(jax.stages.Lowered, 'compile', fail)


def build(name: str, settings: Settings) -> Any:
  """Builds the records, and the rules of the run."""
  if name == 'meta_training':
    return meta_trainer.config_of(settings)
  config = training_config.config_of(settings)
  for rule in ('actor_critic', 'policy_gradient'):
    rule_registry.load(rule, **config.rule_settings)
  known = {field.name for field in dataclasses.fields(disco.Disco)}
  disco.Disco(**{k: v for k, v in config.rule_settings.items() if k in known})
  return config


def is_built(name: str, changes: Settings) -> bool:
  """Whether settings are valid; if not, the error must name one of them."""
  try:
    build(name, {**CONFIGS[name], **changes})
  except ValueError as error:
    assert any(setting in str(error) for setting in changes), error
    return False
  return True


@pytest.mark.parametrize('name', CONFIGS)
def test_the_configs_are_valid(name: str) -> None:
  assert is_built(name, {})


@pytest.mark.parametrize(('name', 'setting'), EACH)
def test_invalid_values_raise(name: str, setting: str) -> None:
  default = CONFIGS[name][setting]
  lists = setting in LISTS
  for value in NEVER:
    if lists and isinstance(value, tuple):
      continue
    # Without content they change nothing.
    valid = setting in ('preprocessing', 'by_rule') and value == {}
    valid |= value is None and setting in UNSET[name]
    assert is_built(name, {setting: value}) == valid, value
  if setting not in TEXTS and setting != 'learning_rates':
    assert not is_built(name, {setting: 'cach'})
  if isinstance(default, bool):
    assert not is_built(name, {setting: 1})
    return
  for value in (True, (True,), ('64',), (0,), (-1,), (2**31,)):
    if lists and value in (('64',), (2**31,)):
      continue
    assert not is_built(name, {setting: value}), value
  number = isinstance(default, int | float)
  assert is_built(name, {setting: -1}) == (setting in MAY_BE_MINUS_ONE)
  assert is_built(name, {setting: 0}) == (setting in MAY_BE_ZERO)
  assert is_built(name, {setting: math.inf}) == (setting in MAY_BE_INFINITE)
  if setting in FRACTIONS:
    assert not is_built(name, {setting: 1.5})
  if isinstance(default, int) or not number:
    assert not is_built(name, {setting: 1.5})
    assert not is_built(name, {setting: 2**31})


@pytest.mark.parametrize(
  'name, changes, message',
  [
    ('training', {'torso': 'impalla'}, 'Nearest: impala. There are mlp, '),
    ('training', {'hidden_sizes': ()}, r'=\(\) .* at least one dense layer'),
    ('training', {'channels': (4, -1)}, r'channels=\(4, -1\) .* positive'),
    ('training', {'compute_dtype': 'f16'}, 'one of float32, bfloat16'),
    ('training', {'replay_capacity': 1023}, '=1023 .* the nearest is 1024'),
    ('training', {'on_policy_share': 0.5}, '=0.5 must be at most 0.03125'),
    ('meta_training', {'environments': ''}, 'must name at least one'),
    ('meta_training', {'estimator': 'x'}, 'one of differentiation, evolution'),
    (
      'meta_training',
      {'estimator': 'evolution', 'z_entropy_cost': 0.0},
      'ignore policy_entropy_cost, y_entropy_cost, target_kl_cost, target_mean',
    ),
    (
      'meta_training',
      {'updates_per_rollout': 2, 'on_policy_share': 0.0},
      'Set it to 1',
    ),
    ('meta_training', {'outer_losses': 2}, 'outer_losses=2 .* inner_updates=5'),
    (
      'meta_training',
      {'estimator': 'bootstrapping', 'bootstrapping_is_grounded': False},
      'would ignore policy_entropy_cost=0.01, .* Set policy_entropy_cost=0',
    ),
    ('meta_training', {'mode': 'fast'}, 'one of plain, mixed'),
    ('meta_training', {'save_every': 2}, r'=2 must divide .* one of \[1, 5\]'),
    ('meta_training', {'meta_decay_steps': 1}, 'meta_steps=1000 is above .*=1'),
    ('meta_training', {'rule_prediction_embedding': (3,)}, 'layer of one unit'),
    (
      'meta_training',
      {'rule_policy_target_channels': ()},
      'at least one block',
    ),
    ('meta_training', {'meta_value_hidden_sizes': ()}, 'at least one dense'),
  ],
)
def test_errors_state_the_remedy(
  name: str, changes: Settings, message: str
) -> None:
  with pytest.raises(ValueError, match=message) as caught:
    build(name, {**CONFIGS[name], **changes})
  assert '\n' not in str(caught.value)


def test_the_remedies_are_valid() -> None:
  assert is_built('training', {'on_policy_share': 0.03125})
  assert is_built('meta_training', {'agents': 1, 'validation_trajectories': 25})


NUMBERS = st.integers() | st.floats() | st.integers(-2, 100)
ANYTHING = (
  NUMBERS | st.none() | st.booleans() | st.text(max_size=5) | st.lists(NUMBERS)
)


@pytest.mark.parametrize('name', CONFIGS)
@damage.FEW
@hypothesis.given(data=st.data())
def test_several_settings_at_once(name: str, data: st.DataObject) -> None:
  """Valid settings hold no NaN and no number that exceeds 32 bits."""
  names = st.sampled_from(sorted(CONFIGS[name]))
  changes = data.draw(
    st.dictionaries(names, ANYTHING, min_size=1, max_size=3), label='changes'
  )
  if is_built(name, changes):
    for value in changes.values():
      for number in np.ravel(np.array(value, object)):
        if isinstance(number, int | float):
          assert number == math.inf or abs(number) < 2.0**128
        if isinstance(number, int):
          assert abs(number) < config_lib.WHOLE_LIMIT or number > 2**31


@pytest.mark.parametrize('name', CONFIGS)
@damage.FEW
@hypothesis.given(data=st.data())
def test_absent_and_unknown_settings(name: str, data: st.DataObject) -> None:
  settings = dict(CONFIGS[name])
  # Without a rule there would be a file to download.
  lost = data.draw(st.sampled_from(sorted({*settings} - {'rule'})))
  typo = data.draw(st.text(max_size=3)) + lost + 'x'
  with pytest.raises(ValueError, match='no setting') as caught:
    build(name, {**settings, typo: settings[lost]})
  assert repr(typo) in str(caught.value)
  assert lost in str(caught.value)
  del settings[lost]
  # Some have defaults in the records.
  try:
    build(name, settings)
  except ValueError as error:
    assert lost in str(error)


@pytest.mark.parametrize('number', [3, 2**31, 2**100])
def test_whole_numbers_become_floats_of_any_size(number: int) -> None:
  """JAX refuses integers beyond 32 bits."""
  value = config_lib.valid('name', number, config_lib.Bound)
  assert type(value) is float
  assert value == number


# Flags.


@pytest.fixture(scope='module', autouse=True)
def flags_as_before() -> Iterator[None]:
  with flagsaver.flagsaver():
    yield


def parse(*arguments: str) -> str | dict[str, Any]:
  """The settings that flags make, or the launcher's error message."""
  flags = (f'--config={CONFIG}:catch', *arguments)
  try:
    with launching.parsed('--workdir=nowhere', *flags) as settings:
      return settings
  except SystemExit as ended:
    return launching.message_of(ended)


SETTING = st.sampled_from(sorted(CONFIGS['training']))
PIECE = st.text('.[]()0\'"ab_ =-', max_size=4)


@damage.FEW
@hypothesis.given(
  setting=st.tuples(PIECE, SETTING, PIECE).map(''.join) | st.text(max_size=8),
  value=st.text(max_size=8) | st.sampled_from(('', '1', '(', '1e3', 'nan')),
)
def test_malformed_flags(setting: str, value: str) -> None:
  answer = parse(f'--config.{setting}={value}')
  name = setting.split('=')[0]
  if not isinstance(answer, str):
    assert name in CONFIGS['training'] or '[' in name or ' ' in name


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--config.batch_sze=1', '.*batch_sze.*"batch_size"'),
    ('--config.zzz=1', ".*'zzz'.* --help .*lists all settings"),
    ('--config.agent.torso=1', ".*'agent'.* --help .*lists all settings"),
    ('--config.batch_size=x', '.*batch_size=x must be a whole number'),
    ('--config.batch_size=1.5', '.*batch_size=1.5 must be a whole number'),
    ('--config.learning_rate=fast', '.*learning_rate=fast must be a number'),
    ('--config.normalize_advantage=maybe', '.*normalize_advantage.* True or'),
    ('--config.updates', '.*Missing value.*updates'),
    (
      f'--config={CONFIG}:catchh',
      ".*config evaluate has no 'catchh'; choose one of catch, cartpole",
    ),
    ('--config=configs/evalute.py:catch', ".*'configs/evalute.py'"),
    ('--workdr=x', '.*no flag --workdr. Did you mean --workdir'),
    ('catch', 'Not understood: catch'),
    ('--config.=1', '.*names no setting'),
    ('--config..=1', '.*names no setting'),
    ('--config.hidden_sizes[0]=3', '.*hidden_sizes'),
    ('--config.hidden_sizes=(1,2', '.*hidden_sizes'),
    ('--config=', '.*no config'),
    ('--config=configs', '.*configs'),
    ('---x', '.*x'),
  ],
)
def test_flags_are_named(argument: str, message: str) -> None:
  answer = parse(argument)
  assert isinstance(answer, str)
  assert re.match(f'error: {message}', answer)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('def get_config(): return [].a', "AttributeError: .* no attribute 'a'"),
    ("def get_config(): return {}['a']", "KeyError: 'a'"),
    ('def get_config(): return [][0]', 'IndexError: list index out of range'),
    ('def get_config(:', 'SyntaxError: .*line 1'),
  ],
)
def test_a_bug_in_a_config_is_not_blamed_on_a_flag_of_a_setting(
  content: str, message: str, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'mine.py'
  path.write_text(content)
  answer = parse(f'--config={path}')
  assert isinstance(answer, str)
  assert re.match(f'error: flag --config={path}: {message}', answer)


IMPOSSIBLE = {
  train: (
    ('environment=cach', "'cach'. Nearest names: catch"),
    ('environment=gymnasium/CartPol-v1', 'gymnasium/CartPole-v1'),
    ('rule=actor_critc', "'actor_critc'. Nearest names: actor_critic"),
    ('rule=missing/rule.npz', 'missing/rule.npz'),
    ('rule=setup.npz', 'setup.npz'),
    ('updates=0', 'updates=0 must be at least 1'),
    ('replay_capacity=15', 'replay_capacity=15 .* nearest is 16'),
  ),
  meta_train: (
    ('environments=cach', "'cach'. Nearest names: catch"),
    ('environments=catch/4x3,catch/4', "'catch/4'"),
    ('held_out_environments=cach', "'cach'. Nearest names: catch"),
    ('rule=disco13', "rule='disco13'; use 'untrained', 'disco103'"),
    (
      'rule=actor_critic',
      "rule='actor_critic'; use 'untrained', 'disco103'",
    ),
    ('rule=missing/rule.npz', 'missing/rule.npz'),
    ('agents=0', 'agents=0 must be at least 1'),
    ('replay_capacity=7', 'replay_capacity=7 .* nearest is 24'),
  ),
}


@pytest.mark.parametrize(
  ('launcher', 'argument', 'message'),
  [(launcher, *row) for launcher, rows in IMPOSSIBLE.items() for row in rows],
)
def test_impossible_settings(
  tmp_path: pathlib.Path, launcher: Any, argument: str, message: str
) -> None:
  workdir = tmp_path / 'run'
  config = f'{CONFIG}:catch' if launcher is train else quickstart.__file__
  # Neither the published rule nor several devices are needed to say so.
  other = 'rule=actor_critic' if launcher is train else 'cpu_devices=1'
  flags = (f'--config.{flag}' for flag in (other, argument))
  found = launching.error(launcher, workdir, f'--config={config}', *flags)
  assert re.search(message, found)
  assert not workdir.exists()


# Names.

NAMES = (*environment_registry.names(), *suites.SUITES)
FAMILIES = sorted({name.split('/')[0] for name in NAMES})
ODD = st.sampled_from(
  ('..', '/', '../..', '.npy', '.txt', '\0', ':', '..:x', '9' * 5000, 'x', '٣')
)
VARIANT = st.lists(ODD | st.text(max_size=4), max_size=4).map(''.join)


@damage.FEW
@hypothesis.given(
  name=st.text(max_size=20)
  | st.builds('{}/{}'.format, st.sampled_from(FAMILIES), VARIANT)
  | st.builds(
    lambda n, i: n[:i] + n[i + 1 :], st.sampled_from(NAMES), st.integers(0, 9)
  )
  | st.builds('catch/{}x{}'.format, st.integers(), st.integers())
)
def test_names_of_environments(name: str) -> None:
  try:
    environment_registry.validate(name)
  except ValueError as error:
    message = str(error)
    assert any(
      x in message for x in ('Nearest names', 'suite', 'Catch', '--import=')
    )
  except FileNotFoundError as error:
    assert name.startswith('sokoban/')
    assert name.removeprefix('sokoban/') in str(error)
  except ImportError:
    # The family is known; its package is not here.
    assert name.split('/')[0] in FAMILIES


@pytest.mark.parametrize(
  'name',
  [
    'gymnasium/../x:CartPole-v1',
    'gymnasium/:CartPole-v1',
    'gymnasium/..:CartPole-v1',
    'gymnasium/\0:CartPole-v1',
    'catch/100000x100000',
    'catch/' + '9' * 5000 + 'x3',
    '',
    '/',
  ],
)
def test_meaningless_names_of_environments(name: str) -> None:
  with pytest.raises(ValueError, match='Nearest names|Catch needs'):
    environment_registry.validate(name)


@damage.FEW
@hypothesis.given(
  name=st.text(max_size=12)
  | st.builds('{}{}'.format, st.sampled_from(rule_registry.names()), PIECE)
  | st.builds('{}.npz'.format, VARIANT)
)
@hypothesis.example(name='/\0')
def test_names_of_rules(
  tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
  hypothesis.assume(name not in rule_registry.names())
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(tmp_path_factory.getbasetemp())
    with pytest.raises((ValueError, OSError)) as caught:
      rule_registry.load(name)
  if not sources.is_path(name):
    assert isinstance(caught.value, ValueError)
    assert 'Nearest names' in str(caught.value)
  # Paths are absolute.
  assert name in str(caught.value) or repr(name)[1:-1] in str(caught.value)
