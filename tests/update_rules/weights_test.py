"""What is saved comes back; what is not a rule is refused, by name."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import hashlib
import http.server
import io
import os
import pathlib
import pickle
import shutil
import threading
from typing import Any
from typing import BinaryIO
from typing import NoReturn
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from disco_rl import types
from disco_rl.networks import meta_network
from disco_rl.update_rules import weights
from disco_rl.update_rules import weights_format
from disco_rl.update_rules import weights_published

Arrays = dict[str, Any]

SMALL = meta_network.MetaNetworkConfig(
  prediction_size=10,
  prediction_embedding=(6, 1),
  policy_channels=(7, 2),
  policy_target_channels=(5,),
  lstm_size=12,
  meta_rnn_input_size=4,
  meta_rnn_size=8,
)
DEEP = dataclasses.replace(
  SMALL,
  prediction_embedding=(6, 4, 1),
  policy_channels=(7, 3, 2),
  policy_target_channels=(5, 11),
)
SHALLOW = dataclasses.replace(
  SMALL,
  prediction_embedding=(1,),
  policy_channels=(2,),
  policy_target_channels=(),
)


def random_arrays(config: meta_network.MetaNetworkConfig) -> Arrays:
  rng = np.random.default_rng(0)
  shapes = meta_network.parameter_shapes(config)
  return {
    key: rng.normal(size=shape).astype(np.float32)
    for key, shape in shapes.items()
  }


def nest(arrays: Arrays) -> types.Params:
  params: dict[str, Arrays] = {}
  for key, array in arrays.items():
    module, name = key.rsplit('/', 1)
    params.setdefault(module, {})[name] = array
  return params


def assert_identical(actual: types.Params, expected: types.Params) -> None:
  def check(array: Any, other: Any) -> None:
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert array.shape == other.shape
    assert array.tobytes() == other.tobytes()

  jax.tree.map(check, actual, expected)


@pytest.fixture(scope='module')
def arrays() -> Arrays:
  return random_arrays(SMALL)


@pytest.fixture(scope='module')
def content(arrays: Arrays, tmp_path_factory: pytest.TempPathFactory) -> bytes:
  """Bytes of a file of weights."""
  path = tmp_path_factory.mktemp('weights') / 'rule.npz'
  weights.save(path, nest(arrays))
  return path.read_bytes()


def write(tmp_path: pathlib.Path, arrays: Arrays) -> str:
  path = str(tmp_path / 'rule.npz')
  np.savez(path, **arrays)
  return path


def refusal(path: str | pathlib.Path) -> str:
  """The message with which `load` refuses a file; it must name the file."""
  with pytest.raises(weights.WeightsError) as caught:
    weights.load(path)
  assert str(path) in str(caught.value)
  return str(caught.value)


# What is saved comes back.


@pytest.mark.parametrize('config', [SMALL, DEEP, SHALLOW])
def test_round_trip_is_bit_exact(
  config: meta_network.MetaNetworkConfig, tmp_path: pathlib.Path
) -> None:
  arrays = random_arrays(config)
  # A denormal number, a negative zero, and the largest number.
  arrays['lstm/linear_2/b'][:3] = [1e-45, -0.0, np.finfo(np.float32).max]
  path = tmp_path / 'new' / 'directories' / 'rule.npz'
  weights.save(path, nest(arrays))
  loaded = weights.load(str(path))
  assert_identical(loaded, nest(arrays))
  assert weights.infer_config(loaded) == config
  assert [p.name for p in path.parent.iterdir()] == ['rule.npz']


def test_jax_arrays_are_saved_like_numpy_arrays(
  arrays: Arrays, content: bytes, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  weights.save(path, jax.tree.map(jnp.asarray, nest(arrays)))
  assert path.read_bytes() == content


def test_layout_in_the_file_does_not_matter(
  arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  path = write(tmp_path, {k: np.asfortranarray(v) for k, v in arrays.items()})
  assert_identical(weights.load(path), nest(arrays))


def test_a_compressed_file_is_read(
  arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  path = str(tmp_path / 'rule.npz')
  np.savez_compressed(path, **arrays)
  assert_identical(weights.load(path), nest(arrays))


@pytest.mark.parametrize('dtype', ['float64', '>f4', 'float16', jnp.bfloat16])
def test_other_floats_become_float32(
  dtype: npt.DTypeLike, arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  stored = {key: array.astype(dtype) for key, array in arrays.items()}
  expected = {key: a.astype(np.float32) for key, a in stored.items()}
  assert_identical(weights.load(write(tmp_path, stored)), nest(expected))
  weights.save(tmp_path / 'again.npz', nest(stored))
  assert_identical(weights.load(tmp_path / 'again.npz'), nest(expected))


# What is not a rule is refused.


def test_a_wrong_shape_is_named_whichever_tensor_has_it(arrays: Arrays) -> None:
  for key, array in arrays.items():
    for axis in range(array.ndim):
      wrong = np.repeat(array, 3, axis=axis)
      with pytest.raises(weights.WeightsError) as caught:
        weights.infer_config(nest({**arrays, key: wrong}))
      assert f'  {key}: found {wrong.shape}, expected {array.shape}\n' in str(
        caught.value
      )
      assert str(caught.value).count('found') == 1


def test_a_missing_tensor_is_named_whichever_it_is(arrays: Arrays) -> None:
  for key, array in arrays.items():
    others = {k: v for k, v in arrays.items() if k != key}
    with pytest.raises(weights.WeightsError) as caught:
      weights.infer_config(nest(others))
    message = str(caught.value)
    assert f'  {key}: found nothing, expected {array.shape}\n' in message
    assert 'incomplete' in message


@pytest.mark.parametrize(
  ('key', 'change', 'found'),
  [
    ('lstm/linear/w', np.transpose, 'found (12, 8), expected (8, 12)'),
    ('lstm/linear/w', np.transpose, 'transposed'),
    ('lstm/linear/w', lambda a: a[0, 0], 'found (), expected (8, 12)'),
    ('lstm/linear/w', lambda a: a[:0], 'found (0, 12), expected (8, 12)'),
    ('lstm/linear/w', lambda a: a.astype(np.int32), 'int32 of shape (8, 12)'),
    ('lstm/linear/w', lambda a: a > 0, 'bool of shape (8, 12)'),
    ('lstm/linear/w', lambda a: a + 0j, 'complex64 of shape (8, 12)'),
    ('lstm/linear/w', lambda a: a.astype(str), 'of shape (8, 12)'),
    (
      'lstm/linear/w',
      lambda a: a * np.nan,
      '96 of the values of shape (8, 12)',
    ),
    ('lstm/linear_1/b', lambda a: a * np.inf, '1 of the values of shape (1,)'),
    ('lstm/linear_1/b', lambda _: np.array([1e300]), 'not finite in float32'),
  ],
)
def test_a_wrong_tensor_is_named(
  key: str,
  change: Callable[[np.ndarray], np.ndarray],
  found: str,
  arrays: Arrays,
  tmp_path: pathlib.Path,
) -> None:
  wrong = {**arrays, key: change(arrays[key])}
  message = refusal(write(tmp_path, wrong))
  assert key in message
  assert found in message
  with pytest.raises(weights.WeightsError, match=key):
    weights.save(tmp_path / 'not' / 'written.npz', nest(wrong))
  assert not (tmp_path / 'not').exists()


@pytest.mark.parametrize(
  ('key', 'likely'),
  [
    ('lstm/linear_5/w', 'more than a rule'),
    ('step', 'more than a rule'),
    ('lstm/mlp/~/linear_3/w', 'more than a rule'),
  ],
)
def test_an_additional_tensor_is_named(
  key: str, likely: str, arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  message = refusal(write(tmp_path, {**arrays, key: np.zeros((2, 3))}))
  assert f'{key}: found (2, 3), expected nothing' in message
  assert likely in message


def test_sizes_that_no_network_has_are_refused(arrays: Arrays) -> None:
  zeros = {key: np.zeros(()) for key in arrays}
  with pytest.raises(weights.WeightsError, match='expected'):
    weights.infer_config(nest(zeros))
  empty = {key: array[:0] for key, array in arrays.items()}
  with pytest.raises(weights.WeightsError, match='expected'):
    weights.infer_config(nest(empty))
  with pytest.raises(weights.WeightsError, match='found nothing'):
    weights.infer_config({})


def test_parameters_of_something_else_are_refused(
  tmp_path: pathlib.Path,
) -> None:
  path = write(tmp_path, {'torso/linear/w': np.zeros((2, 3))})
  message = refusal(path)
  assert 'torso/linear/w: found (2, 3), expected nothing' in message
  assert 'lstm/linear/b: found nothing, expected (256,)' in message
  assert 'such as an agent' in message


def test_flat_parameters_are_refused(
  arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  with pytest.raises(weights.WeightsError, match='found ndarray.*nested'):
    weights.save(tmp_path / 'rule.npz', arrays)


@pytest.mark.parametrize(
  ('data', 'likely'),
  [
    (b'', 'empty file'),
    (b'version https://git-lfs.github.com/spec/v1\n', 'Git LFS pointer'),
    (b'\n<!DOCTYPE html><html></html>', 'web page'),
    (b'\x93NUMPY\x01\x00', 'a single array'),
    (pickle.dumps({'w': 1.0}), 'a pickle'),
    (bytes(1000), 'another kind'),
  ],
)
def test_a_foreign_file_is_recognised(
  data: bytes, likely: str, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  path.write_bytes(data)
  assert likely in refusal(path)


def test_a_directory_is_refused(tmp_path: pathlib.Path) -> None:
  assert 'a directory' in refusal(f'{tmp_path}{os.sep}')


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
  with pytest.raises(FileNotFoundError, match='missing.npz'):
    weights.load(tmp_path / 'missing.npz')


@pytest.mark.parametrize('fraction', [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(
  fraction: float, content: bytes, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  path.write_bytes(content[: int(fraction * len(content))])
  assert 'cut short' in refusal(path)
  path.write_bytes(content[:-1])
  assert 'cut short' in refusal(path)


def test_a_flipped_bit_is_noticed_or_harmless(
  arrays: Arrays, content: bytes, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  rng = np.random.default_rng(0)
  refused = 0
  for _ in range(60):
    damaged = bytearray(content)
    damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
    path.write_bytes(damaged)
    try:
      loaded = weights.load(path)
    except weights.WeightsError:
      refused += 1
    else:
      # Bytes such as the date of a member carry no weights.
      assert_identical(loaded, nest(arrays))
  assert refused > 20


def test_a_file_beside_the_arrays_is_refused(
  content: bytes, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  path.write_bytes(content)
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('notes.txt', 'trained on a Tuesday')
  assert 'notes.txt: not a readable array' in refusal(path)


def test_a_tensor_that_is_there_twice_is_refused(
  arrays: Arrays, content: bytes, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  path.write_bytes(content)
  again = io.BytesIO()
  np.save(again, arrays['lstm/linear/w'])
  with (
    zipfile.ZipFile(path, 'a') as archive,
    pytest.warns(UserWarning, match='Duplicate'),
  ):
    archive.writestr('lstm/linear/w.npy', again.getvalue())
  assert 'lstm/linear/w is there twice' in refusal(path)


class Payload:
  """Makes a directory when it is unpickled."""

  def __init__(self, path: pathlib.Path) -> None:
    self._path = path

  def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
    return os.mkdir, (str(self._path),)


@pytest.mark.parametrize('as_array', [True, False])
def test_a_payload_is_not_run(
  as_array: bool, arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  mark = tmp_path / 'was_here'
  path = tmp_path / 'rule.npz'
  if as_array:
    payload = np.array([Payload(mark)], dtype=object)
    np.savez(path, **{**arrays, 'lstm/linear/w': payload})
    message = refusal(path)
    assert 'lstm/linear/w' in message
    assert 'Object arrays' in message
  else:
    path.write_bytes(pickle.dumps(Payload(mark)))
    assert 'a pickle' in refusal(path)
  assert not mark.exists()

  # It would have run, had it been unpickled.
  if as_array:
    with np.load(path, allow_pickle=True) as loaded:
      loaded['lstm/linear/w']
  else:
    pickle.loads(path.read_bytes())
  assert mark.exists()


@pytest.mark.parametrize('rows', [10**4, 10**9, 10**17, -1])
def test_a_shape_beyond_the_data_is_refused(
  rows: int, arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'rule.npz'
  member = io.BytesIO()
  np.lib.format.write_array_header_1_0(
    member, {'descr': '<f4', 'fortran_order': False, 'shape': (rows, 12)}
  )
  others = {k: v for k, v in arrays.items() if k != 'lstm/linear/w'}
  np.savez(path, **others)
  with zipfile.ZipFile(path, 'a') as archive:
    archive.writestr('lstm/linear/w.npy', member.getvalue())
  assert 'lstm/linear/w: not a readable array' in refusal(path)


def test_an_archive_that_unpacks_beyond_reason_is_refused(
  arrays: Arrays, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  path = str(tmp_path / 'rule.npz')
  np.savez_compressed(path, **arrays, zeros=np.zeros(10**6, np.float32))
  monkeypatch.setattr(weights_format, 'MAX_BYTES', 10**6)
  assert 'unpacks to 4' in refusal(path)


# A save that fails.


def files(directory: pathlib.Path) -> list[str]:
  return sorted(p.name for p in directory.iterdir())


def test_an_interrupted_save_leaves_the_old_file(
  arrays: Arrays,
  content: bytes,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'rule.npz'
  path.write_bytes(content)

  def interrupt(*unused_args: object) -> NoReturn:
    raise KeyboardInterrupt

  monkeypatch.setattr(os, 'replace', interrupt)
  with pytest.raises(KeyboardInterrupt):
    weights.save(path, nest({k: v + 1 for k, v in arrays.items()}))
  assert path.read_bytes() == content
  assert files(tmp_path) == ['rule.npz']


def test_a_full_disk_leaves_nothing_half_written(
  arrays: Arrays, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  def write_some(file: BinaryIO, **unused_arrays: object) -> NoReturn:
    file.write(b'PK')
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(np, 'savez', write_some)
  with pytest.raises(OSError, match='No space'):
    weights.save(tmp_path / 'rule.npz', nest(arrays))
  assert not files(tmp_path)


def test_a_path_that_load_would_take_for_a_name_is_refused(
  arrays: Arrays, tmp_path: pathlib.Path
) -> None:
  with pytest.raises(ValueError, match='must end in .npz'):
    weights.save(tmp_path / 'rule', nest(arrays))
  assert not files(tmp_path)


# Published rules.


@dataclasses.dataclass
class Server:
  """Stands in for the publisher: one file, which a test may spoil."""

  url: str
  content: bytes
  status: int = 200
  omitted: int = 0
  requests: int = 0


@pytest.fixture
def server(content: bytes) -> Iterator[Server]:
  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
      served.requests += 1
      self.send_response(served.status)
      self.send_header('Content-Length', str(len(served.content)))
      self.end_headers()
      self.wfile.write(served.content[: len(served.content) - served.omitted])

    def log_message(self, format: str, *args: Any) -> None:
      pass

  with http.server.HTTPServer(('127.0.0.1', 0), Handler) as httpd:
    url = f'http://127.0.0.1:{httpd.server_port}/disco_103.npz'
    served = Server(url, content)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield served
    httpd.shutdown()
    thread.join()


@pytest.fixture
def cache(
  content: bytes,
  server: Server,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> pathlib.Path:
  """An empty cache, with `content` published as disco103."""
  directory = tmp_path / 'cache'
  publication = dataclasses.replace(
    weights_published._PUBLISHED['disco103'],
    url=server.url,
    sha256=hashlib.sha256(content).hexdigest(),
  )
  monkeypatch.setattr(
    weights_published, '_PUBLISHED', {'disco103': publication}
  )
  monkeypatch.setattr(weights_published.pooch, 'os_cache', lambda _: directory)
  monkeypatch.delenv('DISCO_RL_WEIGHTS_DIR', raising=False)
  monkeypatch.setenv('NO_PROXY', '127.0.0.1')
  monkeypatch.setenv('no_proxy', '127.0.0.1')
  return directory


@pytest.mark.parametrize('name', ['disco13', 'Disco103', 'disco_103', 'x', ''])
def test_an_unknown_name_is_refused_with_the_nearest(name: str) -> None:
  with pytest.raises(ValueError, match='Nearest valid names: disco103'):
    weights.load(name)


def test_a_download_is_quiet_and_kept(
  arrays: Arrays,
  server: Server,
  cache: pathlib.Path,
  caplog: pytest.LogCaptureFixture,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  # pooch's logger stands alone, and writes to the standard error of its import.
  monkeypatch.setattr(
    weights_published.pooch.get_logger(), 'handlers', [caplog.handler]
  )
  assert_identical(weights.load('disco103'), nest(arrays))
  assert server.requests == 1
  assert files(cache) == ['disco_103.npz']
  server.status = 500
  assert_identical(weights.load('disco103'), nest(arrays))
  assert server.requests == 1
  assert not caplog.records


@pytest.mark.parametrize(
  ('spoilt', 'error', 'reason'),
  [
    ({'status': 404}, OSError, '404'),
    ({'status': 500}, OSError, '500'),
    ({'omitted': 1000}, OSError, 'Could not download'),
    ({'content': b'<html>sign in first</html>'}, weights.WeightsError, 'SHA'),
  ],
)
def test_a_failed_download_leaves_nothing(
  spoilt: dict[str, Any],
  error: type[Exception],
  reason: str,
  arrays: Arrays,
  server: Server,
  cache: pathlib.Path,
) -> None:
  honest = dataclasses.replace(server)
  vars(server).update(spoilt)
  with pytest.raises(error, match=reason) as caught:
    weights.load('disco103')
  assert server.url in str(caught.value)
  assert 'set DISCO_RL_WEIGHTS_DIR' in str(caught.value)
  assert not files(cache)

  vars(server).update(vars(honest))
  assert_identical(weights.load('disco103'), nest(arrays))


def test_without_a_network_the_remedy_is_named(
  cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  publication = dataclasses.replace(
    weights_published._PUBLISHED['disco103'],
    url='http://127.0.0.1:9/disco_103.npz',
  )
  monkeypatch.setattr(
    weights_published, '_PUBLISHED', {'disco103': publication}
  )
  with pytest.raises(OSError, match='Get disco_103.npz by hand'):
    weights.load('disco103')


def test_a_damaged_cache_is_never_used(
  arrays: Arrays, content: bytes, server: Server, cache: pathlib.Path
) -> None:
  cache.mkdir()
  (cache / 'disco_103.npz').write_bytes(content[:-1])
  server.status = 500
  with pytest.raises(OSError, match='500'):
    weights.load('disco103')
  server.status = 200
  assert_identical(weights.load('disco103'), nest(arrays))
  assert (cache / 'disco_103.npz').read_bytes() == content


def test_the_directory_variable_comes_before_the_cache(
  arrays: Arrays,
  content: bytes,
  server: Server,
  cache: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> None:
  weights.load('disco103')
  directory = tmp_path / 'mine'
  monkeypatch.setenv('DISCO_RL_WEIGHTS_DIR', str(directory))
  with pytest.raises(FileNotFoundError, match='DISCO_RL_WEIGHTS_DIR') as caught:
    weights.load('disco103')
  assert str(directory / 'disco_103.npz') in str(caught.value)

  # A rule, but not the one that is asked for.
  path = directory / 'disco_103.npz'
  weights.save(path, nest({k: v + 1 for k, v in arrays.items()}))
  with pytest.raises(weights.WeightsError, match='SHA-256') as refused:
    weights.load('disco103')
  assert str(path) in str(refused.value)
  assert hashlib.sha256(content).hexdigest() in str(refused.value)

  path.write_bytes(content)
  assert_identical(weights.load('disco103'), nest(arrays))
  assert server.requests == 1


def test_disco103(
  disco103_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
) -> None:
  params = weights.load(disco103_path)
  assert weights.infer_config(params) == meta_network.MetaNetworkConfig()
  leaves = jax.tree.leaves(params)
  assert (len(leaves), sum(x.size for x in leaves)) == (42, 754_778)

  weights.save(tmp_path / 'again.npz', params)
  assert_identical(weights.load(tmp_path / 'again.npz'), params)

  monkeypatch.setenv('DISCO_RL_WEIGHTS_DIR', str(disco103_path.parent))
  assert_identical(weights.load('disco103'), params)
  copy = pathlib.Path(shutil.copy(disco103_path, tmp_path / 'disco_103.npz'))
  copy.chmod(0o600)
  copy.write_bytes(copy.read_bytes()[:-1] + b'x')
  monkeypatch.setenv('DISCO_RL_WEIGHTS_DIR', str(tmp_path))
  with pytest.raises(weights.WeightsError, match='not the published disco103'):
    weights.load('disco103')
