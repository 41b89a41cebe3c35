"""Rules that ship with the package, and those on a hub."""

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
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import workdirs
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights
from launch import evaluate

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


# Shipped rules.


@pytest.mark.parametrize('name', sources.names())
def test_a_rule_of_the_package_is_that_of_its_card(
  name: str, disco103_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv(sources.DIRECTORY_VARIABLE, str(disco103_path.parent))
  card = disco_rl.rules()[name]
  assert card.name == name
  assert card.description.endswith('.')
  assert card.sha256 == cards.sha256_of(sources.find(name))
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


def test_discovery_and_evaluation_begin_with_a_shipped_rule(
  shipped: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  settings = {**quickstart.get_config().to_dict(), 'rule': 'mine'}
  config = meta_trainer.config_of(settings)
  assert_is_the_rule(build.make_rule(config)[1])
  with pytest.raises(ValueError, match="'untrained', 'disco103', 'mine', the"):
    build.make_rule(dataclasses.replace(config, rule='actor_critic'))
  message = launching.error(
    evaluate,
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
  assert found == {'mine': str(shipped / 'mine.npz'), 'a/b.npz': 'a/b.npz'}
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
  path = pathlib.Path(sources.find(address))
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
  hub: hubs.Hub, shipped: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv('HOME', str(shipped))
  hub.files.clear()
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
  # The hub's page has both.
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
  with pytest.raises(FileNotFoundError, match='mine.json'):
    disco_rl.share_rule(shipped / 'mine.npz', 'me/rules')
  assert hub.requests == []
