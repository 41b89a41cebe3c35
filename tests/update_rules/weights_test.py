"""Weights are read back as they were saved; everything else is refused."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import hashlib
import http.server
import io
import os
import pathlib
from typing import Any
from typing import BinaryIO
from typing import NoReturn
from unittest import mock
import zipfile

import hubs
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
import small

from disco_rl import types
from disco_rl.networks import meta_network
from disco_rl.runtime import npz
from disco_rl.update_rules import cards
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights

DEEP = dataclasses.replace(
  small.META_NETWORK,
  prediction_embedding=(6, 4, 1),
  policy_channels=(7, 3, 2),
  policy_target_channels=(5, 11),
)
SHALLOW = dataclasses.replace(
  small.META_NETWORK,
  prediction_embedding=(1,),
  policy_channels=(2,),
  policy_target_channels=(3,),
)


ARRAYS = small.arrays()
GATE = 'lstm/linear/w'


def assert_identical(actual: types.Params, expected: types.Params) -> None:
  def check(array: Any, other: Any) -> None:
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert array.shape == other.shape
    assert array.tobytes() == other.tobytes()

  jax.tree.map(check, actual, expected)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
  """The path of a file with the weights ARRAYS."""
  path = tmp_path / 'rule.npz'
  small.save(path, ARRAYS)
  return path


def assert_refused(path: pathlib.Path, *texts: str) -> None:
  """The message contains the path and these texts."""
  with pytest.raises(weights.WeightsError) as caught:
    weights.load(path)
  for text in (str(path), *texts):
    assert text in str(caught.value)


# What is saved is read back.


@pytest.mark.parametrize('config', [small.META_NETWORK, DEEP, SHALLOW])
def test_round_trip_is_bit_exact(
  config: meta_network.MetaNetworkConfig, tmp_path: pathlib.Path
) -> None:
  arrays = small.arrays(config)
  # A denormal number, a negative zero, and the largest number.
  arrays['lstm/linear_2/b'][:3] = [1e-45, -0.0, np.finfo(np.float32).max]
  path = tmp_path / 'new' / 'directories' / 'rule.npz'
  weights.save(path, small.nest(arrays), config)
  loaded = weights.load(str(path))
  assert_identical(loaded, small.nest(arrays))
  assert weights.load_with_config(path)[1:] == (config, {})
  assert files(path.parent) == ['rule.npz']


@pytest.mark.parametrize('dtype', ['float64', '>f4', 'float16', jnp.bfloat16])
def test_other_floats_become_float32(
  dtype: npt.DTypeLike, path: pathlib.Path
) -> None:
  stored = {key: array.astype(dtype) for key, array in ARRAYS.items()}
  expected = {key: a.astype(np.float32) for key, a in stored.items()}
  if dtype != jnp.bfloat16:  # Files of NumPy have no such type.
    np.savez_compressed(
      path, **jax.tree.map(np.asfortranarray, stored), **small.NOTE
    )
    assert_identical(weights.load(path), small.nest(expected))
  small.save(path, stored)
  assert_identical(weights.load(path), small.nest(expected))


# What is not a rule is refused.


Change = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize(
  ('key', 'change', 'texts'),
  [
    ('lstm/linear/b', lambda a: a[:-1], ['found (11,), expected (12,)']),
    ('lstm/linear_2/w', np.transpose, ['(10, 12), expected (12, 10)']),
    (GATE, lambda a: a[0, 0], ['found (), expected (8, 12)']),
    (GATE, lambda a: a[:0], ['found (0, 12), expected (8, 12)']),
    (GATE, lambda a: a.astype(np.int32), ['int32, expected float32']),
    (GATE, lambda a: a > 0, ['bool, expected float32']),
    (GATE, lambda a: a + 0j, ['complex64, expected float32']),
    (GATE, lambda a: a.astype(str), ['expected float32']),
    (GATE, lambda a: a * np.nan, ['96 values of 96 that are not finite']),
    ('lstm/linear_1/b', lambda a: a * np.inf, ['1 values of 1']),
    ('lstm/linear_1/b', lambda _: np.array([1e300]), ['not finite in float32']),
    # No tensors of a rule.
    ('lstm/linear_5/w', None, ['found (2, 3), expected nothing']),
    ('step', None, ['found (2, 3), expected nothing']),
    ('lstm/mlp/~/linear_3/w', None, ['found (2, 3), expected nothing']),
  ],
)
def test_a_wrong_tensor_is_named(
  key: str, change: Change | None, texts: list[str], path: pathlib.Path
) -> None:
  array = change(ARRAYS[key]) if change else np.zeros((2, 3))
  wrong = {**ARRAYS, key: array}
  np.savez(path, **wrong, **small.NOTE)
  assert_refused(path, key, *texts)
  if '/' in key:
    with pytest.raises(weights.WeightsError, match=key):
      weights.save(
        path.parent / 'not' / 'written.npz',
        small.nest(wrong),
        small.META_NETWORK,
      )
    assert not (path.parent / 'not').exists()


def test_parameters_of_something_else_are_refused(path: pathlib.Path) -> None:
  np.savez(path, **{'torso/linear/w': np.zeros((2, 3))})
  assert_refused(
    path,
    'torso/linear/w: found (2, 3), expected nothing',
    'lstm/linear/b: found nothing, expected (256,)',
    'such as an agent',
  )
  with pytest.raises(weights.WeightsError, match='found nothing'):
    weights.save(path, {})
  mixed = {**ARRAYS, 'lstm/linear_2/b': np.zeros(9)}
  with pytest.raises(weights.WeightsError, match='rules of different sizes'):
    small.save(path, mixed)
  with pytest.raises(weights.WeightsError, match='found ndarray.*nested'):
    weights.save(path, ARRAYS)
  with pytest.raises(weights.WeightsError, match="found 'disco103', .* nested"):
    weights.save(path, 'disco103')  # type: ignore[arg-type]


def note(**changes: Any) -> dict[str, Any]:
  """Makes the note of a file, with some changes."""
  return {'version': 1, 'network': {}, 'settings': {}, **changes}


@pytest.mark.parametrize(
  ('wrong', 'text'),
  [
    ({'version': 2}, 'has version 2 of the format, but this program reads'),
    ({'version': 1}, "does not have: 'network'"),
    (note(network=3), 'its note is damaged'),
    (note(network={'size': 3}), "unexpected keyword argument 'size'"),
    (note(network={'lstm_size': 0}), 'lstm_size=0 must be at least 1'),
    (note(network={'lstm_size': 10**9}), 'has a network as large'),
    (note(network={'transformer_layers': 10**4}), 'has a network as large'),
    (note(settings={'discount': 0.9}), "unknown settings ['discount']"),
    (note(settings={'aux_pi_cost': [0.0, 0.0]}), 'its note is damaged'),
    ([1], 'format is not a JSON object'),
    ({'version': 'x' * 70_000}, 'format is uint8[7'),
  ],
)
def test_a_wrong_note_is_named(
  path: pathlib.Path, wrong: Any, text: str
) -> None:
  np.savez(path, **ARRAYS, **{npz.NOTE: npz.note_array(wrong)})
  assert_refused(path, text)


def not_an_archive(path: pathlib.Path) -> None:
  path.write_bytes(b'version https://git-lfs.github.com/spec/v1\n')


def another_file(path: pathlib.Path) -> None:
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('notes.txt', 'trained on a Tuesday')


def append(path: pathlib.Path, data: bytes, **settings: Any) -> None:
  """Adds the gate once more."""
  with zipfile.ZipFile(path, 'a', **settings) as archive:
    archive.writestr(f'{GATE}.npy', data)


def twice(path: pathlib.Path) -> None:
  data = io.BytesIO()
  np.save(data, ARRAYS[GATE])
  with pytest.warns(UserWarning, match='Duplicate'):
    append(path, data.getvalue())


def header(path: pathlib.Path, rows: int, data: bytes = b'') -> None:
  """Writes a gate whose header states a number of rows."""
  others = {k: v for k, v in ARRAYS.items() if k != GATE}
  np.savez(path, **others, **small.NOTE)
  member = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    member, {'descr': '<f4', 'fortran_order': False, 'shape': (rows, 12)}
  )
  append(path, member.getvalue() + data, compression=zipfile.ZIP_DEFLATED)


def lzma(path: pathlib.Path) -> None:
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_LZMA) as archive:
    archive.writestr('lstm/linear/b.npy', bytes(10**6))


@pytest.mark.parametrize(
  ('damage', 'text'),
  [
    (not_an_archive, 'Git LFS'),
    (another_file, 'not an npz archive'),
    (twice, 'duplicate array name'),
    (lzma, 'a method other than deflate'),
    *(
      (lambda path, rows=rows: header(path, rows), f'{GATE}.npy takes')
      for rows in (10**4, 10**9, 10**17, -1)
    ),
  ],
)
def test_a_damaged_archive_is_refused(
  damage: Callable[[pathlib.Path], None], text: str, path: pathlib.Path
) -> None:
  damage(path)
  assert_refused(path, text)


def test_an_archive_that_unpacks_beyond_reason_is_refused(
  path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Its sizes are checked before it is unpacked."""
  header(path, 10**5, bytes(4 * 12 * 10**5))
  monkeypatch.delattr(npz, '_read_arrays')
  assert_refused(path, 'found (100000, 12), expected (8, 12)')


def test_missing_files_and_directories_are_named(path: pathlib.Path) -> None:
  with pytest.raises(FileNotFoundError, match='missing.npz'):
    weights.load(path.parent / 'missing.npz')
  with pytest.raises(OSError, match=path.parent.name):
    weights.load(f'{path.parent}{os.sep}')


# A save that fails.


def files(directory: pathlib.Path) -> list[str]:
  return sorted(p.name for p in directory.iterdir())


def test_a_full_disk_leaves_the_old_file(
  path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  content = path.read_bytes()

  def write_some(file: BinaryIO, **unused_arrays: object) -> NoReturn:
    file.write(b'PK')
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(np, 'savez', write_some)
  with pytest.raises(OSError, match='No space'):
    weights.save(
      path,
      small.nest({k: v + 1 for k, v in ARRAYS.items()}),
      small.META_NETWORK,
    )
  assert path.read_bytes() == content
  assert files(path.parent) == ['rule.npz']


def test_a_path_that_load_would_take_for_a_name_is_refused(
  path: pathlib.Path,
) -> None:
  with pytest.raises(ValueError, match='must end in .npz'):
    small.save(path.parent / 'rule', ARRAYS)
  assert files(path.parent) == ['rule.npz']


# Published rules.


@dataclasses.dataclass
class Server:
  """Stands in for the publisher: one file, which a test may change."""

  content: bytes
  url: str = ''
  status: int = 200
  omitted: int = 0
  requests: int = 0


@pytest.fixture
def server(path: pathlib.Path) -> Iterator[Server]:
  served = Server(path.read_bytes())

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
      served.requests += 1
      self.send_response(served.status)
      self.send_header('Content-Length', str(len(served.content)))
      self.end_headers()
      self.wfile.write(served.content[: len(served.content) - served.omitted])

    def log_message(self, format: str, *args: Any) -> None:
      pass

  with hubs.listening(Handler) as url:
    served.url = f'{url}/disco_103.npz'
    yield served


@pytest.fixture
def cache(
  server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> pathlib.Path:
  """An empty cache; the server's content is published as disco103."""
  directory = tmp_path / 'cache'
  digest = hashlib.sha256(server.content).hexdigest()
  card = cards.Card('disco103', sha256=digest)
  # Nobody answers at the first address.
  urls = ('http://127.0.0.1:1/disco_103.npz', server.url)
  published = sources.Published(urls, card)
  monkeypatch.setitem(sources.PUBLISHED, 'disco103', published)
  monkeypatch.setattr(sources.pooch, 'os_cache', lambda _: directory)
  monkeypatch.delenv('DISCO_RL_WEIGHTS_DIR', raising=False)
  monkeypatch.setenv('NO_PROXY', '127.0.0.1')
  monkeypatch.setenv('no_proxy', '127.0.0.1')
  return directory


def test_an_unknown_name_is_refused() -> None:
  with pytest.raises(
    ValueError, match="rule 'Disco103'. Valid names: disco103"
  ):
    weights.load('Disco103')


def test_a_user_without_a_home_is_told_where_rules_may_lie(
  cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  del cache
  no_home = mock.Mock(side_effect=RuntimeError('set HOME'))
  monkeypatch.setattr(sources.pooch, 'os_cache', no_home)
  with pytest.raises(OSError, match='set HOME.*DISCO_RL_WEIGHTS_DIR'):
    weights.load('disco103')


def test_a_download_is_quiet_and_kept(
  server: Server,
  cache: pathlib.Path,
  caplog: pytest.LogCaptureFixture,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  # pooch's logger does not propagate, and writes to an older standard error.
  monkeypatch.setattr(sources.pooch.get_logger(), 'handlers', [caplog.handler])
  assert_identical(weights.load('disco103'), small.nest(ARRAYS))
  assert files(cache) == ['disco_103.npz']
  server.status = 500
  assert_identical(weights.load('disco103'), small.nest(ARRAYS))
  assert server.requests == 1
  assert not caplog.records


@pytest.mark.parametrize(
  ('changes', 'error', 'reason'),
  [
    ({'status': 404}, OSError, '404'),
    ({'status': 500}, OSError, '500'),
    ({'omitted': 1000}, OSError, 'Could not download'),
    ({'content': b'<html>sign in first</html>'}, weights.WeightsError, 'SHA'),
  ],
)
def test_a_failed_download_changes_nothing(
  changes: dict[str, Any],
  error: type[Exception],
  reason: str,
  server: Server,
  cache: pathlib.Path,
) -> None:
  original = dataclasses.replace(server)
  vars(server).update(changes)
  cache.mkdir()
  (cache / 'disco_103.npz').write_bytes(b'damaged')
  with pytest.raises(error, match=reason) as caught:
    weights.load('disco103')
  assert server.url in str(caught.value)
  assert 'set DISCO_RL_WEIGHTS_DIR' in str(caught.value)
  assert files(cache) == ['disco_103.npz']
  # What is in the cache is not used either.
  vars(server).update(vars(original))
  assert_identical(weights.load('disco103'), small.nest(ARRAYS))


def test_the_directory_variable_comes_before_the_cache(
  server: Server,
  cache: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> None:
  weights.load('disco103')
  path = tmp_path / 'mine' / 'disco_103.npz'
  monkeypatch.setenv('DISCO_RL_WEIGHTS_DIR', str(path.parent))
  with pytest.raises(FileNotFoundError, match=f'DISCO_RL_WEIGHTS_DIR.*{path}'):
    weights.load('disco103')

  # Another rule.
  small.save(path, {k: v + 1 for k, v in ARRAYS.items()})
  assert weights.load(path)
  digest = hashlib.sha256(server.content).hexdigest()
  with pytest.raises(weights.WeightsError, match=f'{path} is not .*{digest}'):
    weights.load('disco103')

  path.write_bytes(server.content)
  assert_identical(weights.load('disco103'), small.nest(ARRAYS))
  assert server.requests == 1


def test_disco103(
  disco103_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> None:
  monkeypatch.setenv('DISCO_RL_WEIGHTS_DIR', str(disco103_path.parent))
  params = weights.load('disco103')
  assert weights.load_with_config('disco103')[1:] == (
    meta_network.MetaNetworkConfig(),
    {},
  )
  leaves = jax.tree.leaves(params)
  assert (len(leaves), sum(x.size for x in leaves)) == (42, 754_778)
  weights.save(tmp_path / 'again.npz', params)
  assert_identical(weights.load(tmp_path / 'again.npz'), params)
