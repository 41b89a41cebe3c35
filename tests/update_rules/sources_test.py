"""Rules that ship with the package, and those on a hub."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import hashlib
import importlib
import json
import pathlib
import shutil
from typing import Any

import hubs
import launching
import numpy as np
import pytest
import small

from configs import quickstart
import disco_rl
from disco_rl.api import rules as rules_lib
from disco_rl.evaluation import planned_runs
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import cards
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights
from launch import train

ARRAYS = small.arrays()
COMMIT = hubs.COMMIT


@pytest.fixture
def shipped(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
  """The folder of shipped rules: one, named mine, with its card."""
  folder = tmp_path / 'shipped'
  small.save(folder / 'mine.npz', ARRAYS)
  write_card(folder / 'mine.npz')
  monkeypatch.setattr(sources, 'SHIPPED', folder)
  return folder


def write_card(path: pathlib.Path, **changes: Any) -> None:
  card = {
    'name': 'mine',
    'description': 'Made here.',
    'environments': ['catch/4x3'],
    'sha256': hashlib.sha256(path.read_bytes()).hexdigest(),
    'of_a_later_version': 1,
  }
  path.with_suffix('.json').write_text(json.dumps({**card, **changes}))


def assert_is_the_rule(params: Any) -> None:
  for key, array in ARRAYS.items():
    module, _, name = key.rpartition('/')
    np.testing.assert_array_equal(params[module][name], array)


# Rules that are not there.


def of_trainer(path: str) -> Any:
  return disco_rl.Trainer('catch/4x3', path)


def of_runs(path: str) -> Any:
  return planned_runs.training('x', pathlib.Path('x'), 'x', {'rule': path})


def of_training(path: str) -> Any:
  return training_config.config_of({'rule': path})


def of_discovery(path: str) -> Any:
  return build.load_rule(path, {})


@pytest.mark.parametrize(
  'read', [weights.load, of_trainer, of_runs, of_training, of_discovery]
)
def test_a_missing_rule_has_a_likely_cause(
  read: Callable[[str], Any], tmp_path: pathlib.Path
) -> None:
  (run := tmp_path / 'run').mkdir()
  path = run / 'rule.npz'

  def message(path: pathlib.Path, error: type = FileNotFoundError) -> str:
    with pytest.raises(error, match=str(path)) as caught:
      read(str(path))
    assert '\n' not in str(caught.value)
    return str(caught.value)

  assert f'{run}/a is not a folder: likely' in message(run / 'a/b/rule.npz')
  assert 'Likely the path is mistyped' in message(path)
  (run / 'config.json').touch()
  assert 'a run that discovers no rule' in message(path)
  (run / 'initial_rule.npz').touch()
  assert 'has not saved it yet: rule.npz comes with the first' in message(path)
  assert 'its folder has initial_rule.npz' in message(run / 'initial_rul.npz')
  assert f'a discovery writes {path}' in message(run, IsADirectoryError)
  path.symlink_to('gone')
  path.rename(run / 'link.npz')
  assert 'It is a link to gone' in message(run / 'link.npz')
  path.touch()
  assert 'rule.npz is the newest' in message(run / 'newest_rule.npz')


# Shipped rules.


@pytest.mark.parametrize('name', sources.names())
def test_a_rule_of_the_package_is_that_of_its_card(
  name: str, disco103_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv(sources.DIRECTORY_VARIABLE, str(disco103_path.parent))
  card = disco_rl.rules()[name]
  assert card.name == name
  assert card.description.endswith('.')
  assert card.sha256 == cards.sha256_of(sources.locate(name))
  assert weights.load(name)


def test_shipped_rules_are_known_by_name(shipped: pathlib.Path) -> None:
  assert registry.names()[-1] == 'mine'
  assert_is_the_rule(weights.load('mine'))
  assert_is_the_rule(disco_rl.load_rule('mine').params)
  path = shipped / 'mine.npz'
  assert_is_the_rule(disco_rl.load_rule(path).params)
  assert disco_rl.load_rule(path).name == str(path)
  # A path is never a name.
  with pytest.raises(FileNotFoundError, match='mine'):
    disco_rl.load_rule(pathlib.Path('mine'))
  listed = disco_rl.rules()
  assert list(listed) == list(registry.names())
  assert listed['mine'].environments == ('catch/4x3',)
  assert listed['actor_critic'].description.startswith('Policy gradient with V')
  with pytest.raises(ValueError, match=r"'mime'. Nearest names: mine"):
    registry.load('mime')
  with pytest.raises(ValueError, match=r'Valid names: disco103, mine\.'):
    weights.load('mime')
  shutil.rmtree(shipped)
  assert 'mine' not in disco_rl.rules()


def test_discovery_and_training_begin_with_a_shipped_rule(
  shipped: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  settings = {**quickstart.get_config().to_dict(), 'rule': 'mine'}
  config = meta_trainer.config_of(settings)
  assert_is_the_rule(build.make_rule(config)[1])
  with pytest.raises(ValueError, match="'untrained', 'disco103', 'mine', the"):
    build.make_rule(dataclasses.replace(config, rule='actor_critic'))
  message = launching.error(
    train,
    tmp_path / 'run',
    f'--config={launching.REPOSITORY}/configs/evaluate.py:quickstart',
    '--config.rule=mime',
  )
  assert 'Nearest names: mine. ' in message


def test_a_shipped_rule_must_be_that_of_its_card(shipped: pathlib.Path) -> None:
  write_card(shipped / 'mine.npz', sha256=64 * '0')
  with pytest.raises(weights.WeightsError, match=f'mine.npz .* {64 * "0"}'):
    weights.load('mine')
  (shipped / 'mine.json').write_text('{"name": "mine", "agents": "two"}')
  with pytest.raises(cards.CardError, match="mine.json .* agents is 'two'"):
    disco_rl.rules()


def test_runs_notice_that_a_shipped_rule_has_changed(
  shipped: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """A published one and one of a hub cannot, by their checksums."""
  address = f'hf://me/rules/mine.npz@{COMMIT}'
  rules = ['mine', 'disco103', address, 'actor_critic', 'a/b.npz', 'mine']
  found = sources.files_among(rules)
  assert found == {
    'mine': str(shipped / 'mine.npz'),
    'a/b.npz': f'{pathlib.Path.cwd()}/a/b.npz',
  }
  monkeypatch.setenv('HOME', '/home/me')
  assert sources.files_among(['~/b.npz']) == {'~/b.npz': '/home/me/b.npz'}
  files = sources.files_among(['mine'])
  workdirs.claim(tmp_path / 'run', {}, (), files)
  workdirs.claim(tmp_path / 'run', {}, (), files)
  small.save(shipped / 'mine.npz', {k: x + 1 for k, x in ARRAYS.items()})
  with pytest.raises(workdirs.WorkdirError, match='mine changed since'):
    workdirs.claim(tmp_path / 'run', {}, (), files)


# Addresses on a hub.


@pytest.fixture
def hub(shipped: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[hubs.Hub]:
  """A hub with mine.npz and its card in a folder, and an empty cache."""
  files = {f'a/{x.name}': x.read_bytes() for x in shipped.iterdir()}
  with hubs.serve(files, tmp_path / 'cache') as served:
    yield served


def test_a_rule_of_a_hub_is_loaded_once(hub: hubs.Hub) -> None:
  address = f'hf://me/rules/a/mine.npz@{COMMIT}'
  loaded = disco_rl.load_rule(address)
  assert loaded.name == address
  assert_is_the_rule(loaded.params)
  path = pathlib.Path(sources.locate(address))
  assert cards.read(cards.path_of(path)).description == 'Made here.'
  del hub.requests[:]
  assert_is_the_rule(weights.load(address))
  assert hub.requests == []


def test_a_rule_of_a_hub_is_checked(hub: hubs.Hub) -> None:
  digest = hashlib.sha256(hub.files['a/mine.npz']).hexdigest()
  by_digest = f'hf://me/rules/a/mine.npz#sha256={digest}'
  assert_is_the_rule(weights.load(by_digest))
  del hub.files['a/mine.json']
  other = 40 * 'b'
  with pytest.raises(ValueError, match=f'no card .* It is {digest} now'):
    weights.load(f'hf://me/rules/a/mine.npz@{other}')
  assert_is_the_rule(
    weights.load(f'hf://me/rules/a/mine.npz@{other}#sha256={digest}')
  )
  hub.files['a/mine.npz'] += b'changed'
  hub.commit = 40 * 'c'
  with pytest.raises(weights.WeightsError, match=f'address says {digest}'):
    weights.load(by_digest)


def test_a_card_does_not_replace_the_digest_of_an_address(
  hub: hubs.Hub,
) -> None:
  """Whoever can write to the repository controls the file and its card."""
  digest = hashlib.sha256(hub.files['a/mine.npz']).hexdigest()
  hub.files['a/mine.npz'] += b'changed'
  changed = hashlib.sha256(hub.files['a/mine.npz']).hexdigest()
  card = {**json.loads(hub.files['a/mine.json']), 'sha256': changed}
  hub.files['a/mine.json'] = json.dumps(card).encode()
  address = f'hf://me/rules/a/mine.npz#sha256={digest}'
  with pytest.raises(weights.WeightsError, match=f'address says {digest}'):
    weights.load(address)


def test_a_card_of_another_file_is_not_used(
  shipped: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  path = tmp_path / 'of_others.npz'
  shutil.copy(shipped / 'mine.npz', path)
  write_card(path, settings={'discount': 0.5}, sha256=64 * '0')
  for _ in range(2):
    loaded = registry.load_with_card(path)
    assert loaded.card is None
    assert isinstance(loaded.rule, disco.Disco)
    assert loaded.rule.discount == disco.Disco.discount
  printed = capsys.readouterr().err
  assert printed.count('is the card of a file with the SHA-256 0000') == 1
  write_card(path, settings={'discount': 0.5})
  assert registry.load_with_card(path).card is not None


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'environments': [['catch']]}, r"environments has \['catch'\]"),
    ({'agents': True}, 'agents is True'),
    ({'compute': 3}, 'compute is 3'),
    ({'held_out': []}, r'held_out is \[\]'),
    ({'description': 2**21 * 'x'}, 'more than 1,048,576 bytes'),
  ],
)
def test_bad_cards(
  changes: dict[str, Any], message: str, shipped: pathlib.Path
) -> None:
  write_card(shipped / 'mine.npz', **changes)
  with pytest.raises(cards.CardError, match=f'mine.json .*{message}'):
    cards.read(shipped / 'mine.json')


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'num_bins': 10**8}, 'num_bins=100000000 must be 2 to 65,536'),
    ({'action_model_lstm': 10**7}, 'action_model_lstm=10000000 must be 1 to'),
    ({'hidden_sizes': [10**6]}, 'must be positive widths up to 65,536'),
    ({'hidden_sizes': 99 * [8]}, 'of at most 50 layers'),
    ({'batch_size': 10**9}, 'The card of .*batch_size=1000000000 must be 1 to'),
    ({'replay_capacity': 10**9}, 'replay_capacity=1000000000 must be 1 to'),
  ],
)
def test_cards_that_ask_for_too_much(
  settings: dict[str, Any],
  message: str,
  shipped: pathlib.Path,
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'greedy.npz'
  shutil.copy(shipped / 'mine.npz', path)
  write_card(path, settings=settings)
  with pytest.raises(ValueError, match=message):
    disco_rl.Trainer('catch/4x3', path)


def test_cards_as_markdown_show_what_they_hold() -> None:
  card = cards.Card(
    'a\n# b <script>',
    '# c [d](javascript:e)',
    environments=('x`<i>`',),
    versions={'f': '<b>|'},
    compute={'seconds': 90},
    held_out={'returns': {'g|': {'mean': 1.0, 'min': 10**400, 'max': 2}}},
    settings={'`h|': '`'},
    license='<i>',
  )
  text = cards.as_markdown(card)
  for shown in (
    '### a # b &lt;script&gt;\n',
    '\n\\# c [d\\](javascript:e)\n',
    "| environments | `x'<i>'` |\n",
    '| versions | f &lt;b&gt;\\| |\n',
    '| compute | 2 min on ? x devices |\n',
    '| license | &lt;i&gt; |\n',
  ):
    assert shown in text
  for damaged in ({'returns': 3}, {'returns': {'x': 3}}, {'agents': []}):
    broken = dataclasses.replace(
      card, held_out=damaged, compute={'seconds': ''}
    )
    assert cards.as_markdown(broken)


@pytest.mark.parametrize(
  ('address', 'error', 'reason'),
  [
    ('hf://me/rules/mine.npz', ValueError, 'not pinned'),
    ('hf://me/rules/mine.npz@main', ValueError, 'not pinned'),
    (f'hf://me/mine.npz@{COMMIT}', ValueError, 'not an address'),
    (f'hf://me/rules/mine@{COMMIT}', ValueError, 'not an address'),
    ('hf://me/rules/mine.npz#sha256=12', ValueError, 'not an address'),
    (f'hf://me/rules/none.npz@{COMMIT}', FileNotFoundError, 'has no file none'),
    (f'hf://you/rules/mine.npz@{COMMIT}', OSError, 'Could not download'),
  ],
)
def test_addresses_that_lead_nowhere(
  address: str, error: type[Exception], reason: str, hub: hubs.Hub
) -> None:
  with pytest.raises(error, match=reason) as caught:
    registry.load(address)
  assert repr(address) in str(caught.value)
  assert bool(hub.requests) == (error is not ValueError)


def test_shared_rules_can_be_loaded(
  hub: hubs.Hub,
  shipped: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  monkeypatch.setenv('HOME', str(shipped))
  hub.files.clear()
  hub.files['other.json'] = b'["no card"]'
  addresses = []
  for name in ('mine', 'my other rule'):
    write_card(shipped / 'mine.npz', name=name)
    address = disco_rl.share_rule('~/mine.npz', 'me/rules', license='X')
    addresses.append(address)
    assert_is_the_rule(rules_lib.load_rule(address).params)
  digest = cards.sha256_of(shipped / 'mine.npz')[:8]
  assert addresses == [
    f'hf://me/rules/{name}-{digest}.npz@{COMMIT}'
    for name in ('mine', 'my-other-rule')
  ]
  # The hub's page has both, but nothing of a file that is no card.
  assert 'leaves out other.json of me/rules' in capsys.readouterr().err
  readme = hub.files['README.md'].decode()
  head, text = readme.split('---\n')[1:]
  assert 'library_name: disco_rl\nlicense: x\n' in head
  assert [x for x in text.splitlines() if x.startswith('### ')] == [
    '### my other rule',
    '### mine',
  ]
  assert f'hf://me/rules/my-other-rule-{digest}.npz@COMMIT' in text
  for title in ('## Use', '## Limits', '| license | X |', 'Made here.'):
    assert title in text

  constants = importlib.import_module('huggingface_hub.constants')
  with pytest.MonkeyPatch.context() as patch:
    # Nobody listens there.
    patch.setattr(constants, 'ENDPOINT', 'http://127.0.0.1:9')
    with pytest.raises(OSError, match="Could not upload to 'me/rules'"):
      disco_rl.share_rule(shipped / 'mine.npz', 'me/rules')

  del hub.requests[:]
  write_card(shipped / 'mine.npz', sha256=None)
  with pytest.raises(weights.WeightsError, match='its card says None'):
    disco_rl.share_rule(shipped / 'mine.npz', 'me/rules')
  (shipped / 'mine.json').unlink()
  with pytest.raises(FileNotFoundError, match='mine.json .* copy both'):
    disco_rl.share_rule(shipped / 'mine.npz', 'me/rules')
  assert hub.requests == []
