"""Weights of update rules: published ones by name, any others by path.

A file is an npz archive of float32 arrays under the keys `module/parameter`.
What is read or written is checked in full: the keys and shapes against those of
a meta-network of the sizes that the arrays themselves imply, and every value.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import functools
import hashlib
import io
import itertools
import logging
import lzma
import os
import pathlib
import tokenize
from typing import Any
import uuid
import zipfile
import zlib

import jax.numpy as jnp
import numpy as np
import pooch

from disco_rl import types
from disco_rl.networks import meta_network

DIRECTORY_VARIABLE = 'DISCO_RL_WEIGHTS_DIR'

_Shapes = Mapping[str, tuple[int, ...]]
_Path = str | os.PathLike[str]
# A tensor's key, and how a size of the network follows from the tensor's shape.
_Source = tuple[str, Callable[[tuple[int, ...]], int]]
# Name of a stack's i-th layer.
_Stack = Callable[[int], str]


class WeightsError(ValueError):
  """A file or a tree of arrays is not the weights of an update rule."""


@dataclasses.dataclass(frozen=True)
class _Publication:
  """Where a rule's weights are published.

  Attributes:
    file: its name in the cache and in the directory of DIRECTORY_VARIABLE.
    url: to download it from.
    sha256: hexadecimal digest of the file.
  """

  file: str
  url: str
  sha256: str


_PUBLISHED: Mapping[str, _Publication] = {
  'disco103': _Publication(
    file='disco_103.npz',
    url=(
      'https://raw.githubusercontent.com/google-deepmind/disco_rl/main/'
      'disco_rl/update_rules/weights/disco_103.npz'
    ),
    sha256='dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa',
  )
}

# Disco103 takes 3 MB. An archive may claim to unpack to any size, so the claim
# is refused before memory is spent on it.
_MAX_BYTES = 2**30
_MAX_LISTED = 8

_META_RNN = 'lstm/~/meta_lstm/~unroll'

# First bytes of files that are mistaken for weights -> what they are.
_FOREIGN = {
  b'version https://git-lfs': 'a Git LFS pointer; `git lfs pull` gets the file',
  b'\x93NUMPY': 'a single array; weights are an npz archive of many',
  b'\x89HDF': 'an HDF5 file',
  b'\x80': 'a pickle, which is never read because it could run code',
  b'PK': 'an archive cut short, as by an interrupted download or copy',
  b'<': 'a web page, as where a link to a page about the file was followed',
}

# What zipfile, zlib and NumPy raise for bytes that they cannot make sense of.
_UNREADABLE = (
  ArithmeticError,
  EOFError,
  MemoryError,
  OSError,
  RuntimeError,
  SyntaxError,
  TypeError,
  ValueError,
  lzma.LZMAError,
  tokenize.TokenError,
  zipfile.BadZipFile,
  zlib.error,
)


def load(name_or_path: _Path) -> types.Params:
  """Weights of an update rule, as float32 NumPy arrays.

  A published rule is taken from the directory that DISCO_RL_WEIGHTS_DIR names;
  where that is not set, from the user's cache; else it is downloaded into the
  cache. Its SHA-256 is checked wherever it was found.

  Args:
    name_or_path: the name of a published rule ('disco103'); or a path, which
      ends in '.npz' or contains a path separator.

  Returns:
    Module name -> parameter name -> array; shapes are those of
    `meta_network.parameter_shapes(infer_config(params))`.

  Raises:
    FileNotFoundError: there is no such file; or DISCO_RL_WEIGHTS_DIR is set and
      the rule is not there.
    OSError: the download failed.
    ValueError: no rule is published under this name.
    WeightsError: the file is damaged, or holds something else.
  """
  text = os.fspath(name_or_path)
  if is_path(text):
    arrays = _read_archive(_read_bytes(text), text)
  else:
    arrays = _load_published(text)
  return _nest(arrays)


def save(path: _Path, params: types.Params) -> None:
  """Writes weights that `load` reads back bit for bit.

  The file appears whole or not at all, and one that was there stays as it was
  until then. Directories on the way to it are made.

  Args:
    path: of the file, ending in '.npz'.
    params: the parameters of a meta-network, of any floating type.

  Raises:
    ValueError: the path does not end in '.npz'.
    WeightsError: `params` are not the weights of an update rule; nothing is
      written.
  """
  target = pathlib.Path(path)
  if target.suffix != '.npz':
    raise ValueError(
      f'{target}: the name of a file of weights must end in .npz, or `load` '
      'could take it for the name of a rule.'
    )
  flat = _flatten(params, str(target))
  _check_structure({k: np.shape(v) for k, v in flat.items()}, str(target))
  arrays: dict[str, Any] = {
    key: _to_float32(np.asarray(value), key, str(target))
    for key, value in flat.items()
  }
  target.parent.mkdir(parents=True, exist_ok=True)
  # In the same directory, because a rename is atomic within a file system only.
  temporary = target.with_name(f'.{target.name}.{uuid.uuid4().hex}.tmp')
  try:
    with temporary.open('xb') as file:
      np.savez(file, **arrays)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, target)
  finally:
    temporary.unlink(missing_ok=True)


def infer_config(params: types.Params) -> meta_network.MetaNetworkConfig:
  """Sizes of the meta-network that these parameters belong to.

  Raises:
    WeightsError: a parameter is missing, is one too many, or has a shape that
      does not fit the others.
  """
  where = 'the parameters'
  flat = _flatten(params, where)
  return _check_structure({k: np.shape(v) for k, v in flat.items()}, where)


# Finding the file.


def is_path(text: str) -> bool:
  separators = (os.sep, os.altsep or os.sep)
  return text.endswith('.npz') or any(s in text for s in separators)


def _load_published(name: str) -> dict[str, np.ndarray]:
  if name not in _PUBLISHED:
    nearest = difflib.get_close_matches(
      name.lower(), list(_PUBLISHED), cutoff=0.0
    )
    raise ValueError(
      f'No rule is published as {name!r}. Nearest valid names: '
      f'{", ".join(nearest)}. A path must end in .npz or contain {os.sep!r}.'
    )
  publication = _PUBLISHED[name]
  path = _path_in_directory(publication) or _path_in_cache(publication)
  data = _read_bytes(path)
  digest = hashlib.sha256(data).hexdigest()
  if digest != publication.sha256:
    raise WeightsError(
      f'{path}: not the published {name}: SHA-256 {digest}, expected '
      f'{publication.sha256}. Likely damaged, or another file of that name. '
      f'{_remedy(publication)}'
    )
  return _read_archive(data, path)


def _path_in_directory(publication: _Publication) -> str | None:
  directory = os.environ.get(DIRECTORY_VARIABLE)
  if not directory:
    return None
  path = os.path.join(directory, publication.file)
  if not os.path.exists(path):
    # Whoever sets the variable wants that file: no other may stand in for it.
    raise FileNotFoundError(
      f'{DIRECTORY_VARIABLE} is set, but there is no {path}. Put the file of '
      f'{publication.url} there, or unset the variable to download it.'
    )
  return path


def _path_in_cache(publication: _Publication) -> str:
  """Path in the cache; downloads what is not there or has another SHA-256."""
  cache = pooch.os_cache('disco_rl')
  try:
    with _quiet(pooch.get_logger()):
      return pooch.retrieve(
        publication.url,
        known_hash=f'sha256:{publication.sha256}',
        fname=publication.file,
        path=cache,
      )
  # In this order: what requests raises can be both.
  except OSError as error:
    raise OSError(
      f'Could not download {publication.url} to {cache}: {error}. '
      f'{_remedy(publication)}'
    ) from error
  except ValueError as error:
    raise WeightsError(
      f'{publication.url}: what was downloaded was discarded, as its SHA-256 '
      f'is not {publication.sha256}. Likely a proxy answered with a page of '
      f'its own, or the published file has changed. {_remedy(publication)}'
    ) from error


def _remedy(publication: _Publication) -> str:
  return (
    f'Get {publication.file} by hand from {publication.url} and set '
    f'{DIRECTORY_VARIABLE} to the directory that holds it.'
  )


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
  level = logger.level
  logger.setLevel(logging.WARNING)
  try:
    yield
  finally:
    logger.setLevel(level)


def _read_bytes(path: str) -> bytes:
  try:
    with open(path, 'rb') as file:
      return file.read()
  except FileNotFoundError:
    raise FileNotFoundError(f'There is no file of weights {path}.') from None
  except IsADirectoryError:
    raise WeightsError(
      f'{path}: a directory; name the npz file in it.'
    ) from None


# Reading the archive.


def _read_archive(data: bytes, path: str) -> dict[str, np.ndarray]:
  """Checked arrays by key, of the bytes of an npz archive."""
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
      stored = _read_members(archive, path)
  except WeightsError:
    raise
  except _UNREADABLE as error:
    raise WeightsError(
      f'{path}: not a readable npz archive ({error}). Likely '
      f'{_guess_content(data)}.'
    ) from error
  _check_structure({key: a.shape for key, a in stored.items()}, path)
  return {key: _to_float32(array, key, path) for key, array in stored.items()}


def _guess_content(data: bytes) -> str:
  if not data:
    return 'an empty file, left by an interrupted download or copy'
  guesses = (v for k, v in _FOREIGN.items() if data.lstrip().startswith(k))
  return next(guesses, 'a file of another kind, or a damaged one')


def _read_members(archive: zipfile.ZipFile, path: str) -> dict[str, np.ndarray]:
  members = archive.infolist()
  size = sum(member.file_size for member in members)
  if size > _MAX_BYTES:
    raise WeightsError(
      f'{path}: unpacks to {size} bytes, more than the {_MAX_BYTES} that the '
      'weights of a rule may take. Likely damaged, or made to do harm.'
    )
  arrays: dict[str, np.ndarray] = {}
  for member in members:
    key = member.filename.removesuffix('.npy')
    if key in arrays:
      raise WeightsError(f'{path}: {key} is there twice; likely damaged.')
    try:
      data = io.BytesIO(archive.read(member))
      # Objects are refused here: to unpickle them would run code of the file.
      arrays[key] = np.lib.format.read_array(data, allow_pickle=False)
    except _UNREADABLE as error:
      raise WeightsError(
        f'{path}: {key}: not a readable array ({error}). Likely the file is '
        'damaged, or was not written by `weights.save`.'
      ) from error
  return arrays


# Checking.


def _to_float32(array: np.ndarray, key: str, where: str) -> np.ndarray:
  """A copy in float32 and C order; WeightsError where that loses the values."""
  if array.dtype == np.dtype('V2'):
    # An npy file has no name for bfloat16: it comes back as two opaque bytes.
    array = array.view(jnp.bfloat16)
  if not jnp.issubdtype(array.dtype, jnp.floating):
    raise WeightsError(
      f'{where}: {key}: {array.dtype} of shape {array.shape}, expected float32 '
      'of that shape. Likely quantised, or not a parameter at all.'
    )
  with np.errstate(over='ignore'):
    result = np.array(array, np.float32, order='C')
  bad = result.size - np.count_nonzero(np.isfinite(result))
  if bad:
    raise WeightsError(
      f'{where}: {key}: {bad} of the values of shape {result.shape} are not '
      'finite in float32, expected none. Likely saved after training had '
      'diverged: take an earlier checkpoint.'
    )
  return result


@functools.lru_cache(maxsize=8)
def _parameter_shapes(config: meta_network.MetaNetworkConfig) -> _Shapes:
  # Tracing the network takes a good part of a second.
  return meta_network.parameter_shapes(config)


def _check_structure(
  shapes: _Shapes, where: str
) -> meta_network.MetaNetworkConfig:
  """The config whose parameters have these shapes; WeightsError if none has."""
  config = _likely_config(shapes)
  expected = _parameter_shapes(config)
  # First what the file holds, then what it lacks.
  keys = [*sorted(shapes), *sorted(expected.keys() - shapes.keys())]
  differing = [k for k in keys if shapes.get(k) != expected.get(k)]
  if not differing:
    return config
  listed = [
    f'  {key}: found {shapes.get(key, "nothing")}, '
    f'expected {expected.get(key, "nothing")}'
    for key in differing[:_MAX_LISTED]
  ]
  if len(differing) > _MAX_LISTED:
    listed.append(f'  and {len(differing) - _MAX_LISTED} more')
  raise WeightsError(
    '\n'.join(
      [
        f'{where}: not the parameters of a meta-network. Against the sizes '
        'that most of its tensors agree on:',
        *listed,
        f'Likely {_likely_cause(shapes, expected, differing)}. Save a rule '
        'with `weights.save`, or load a published one by name.',
      ]
    )
  )


def _likely_cause(
  shapes: _Shapes, expected: _Shapes, differing: Sequence[str]
) -> str:
  if not set(shapes) & set(expected):
    return 'the parameters of something else, such as an agent'
  if any(key not in shapes for key in differing):
    return 'incomplete, or a meta-network of another architecture'
  if any(key not in expected for key in differing):
    return 'more than a rule was saved, or another architecture'
  if all(shapes[key] == expected[key][::-1] for key in differing):
    return 'transposed: weights are stored as [inputs, outputs]'
  return 'tensors of rules of different sizes were mixed'


# Sizes from shapes.


def _outputs(shape: tuple[int, ...]) -> int:
  return shape[-1]


def _inputs(shape: tuple[int, ...]) -> int:
  return shape[-2]


def _cells(shape: tuple[int, ...]) -> int:
  """Size of an LSTM: its linear layer emits four gates of that size."""
  return shape[-1] // 4


def _linear(mlp: str) -> _Stack:
  return lambda i: f'{mlp}/~/linear_{i}'


def _block(net: str) -> _Stack:
  return lambda i: f'{net}/conv1_d_{i}' if i else f'{net}/conv1_d'


# With one source per size, a wrong tensor that is the source would make all the
# others look wrong. Of three sources two outvote it, and the error names it.
_SIZES: Mapping[str, Sequence[_Source]] = {
  'prediction_size': (
    ('lstm/linear_2/w', _outputs),
    ('lstm/linear_2/b', _outputs),
    ('lstm/linear_3/w', _outputs),
  ),
  'lstm_size': (
    ('lstm/linear_2/w', _inputs),
    ('lstm/linear_3/w', _inputs),
    ('lstm/linear/w', _outputs),
  ),
  'meta_rnn_input_size': (
    (f'{_META_RNN}/mlp_2/~/linear_0/w', _outputs),
    (f'{_META_RNN}/mlp_2/~/linear_0/b', _outputs),
    (f'{_META_RNN}/lstm/linear/w', lambda s: _inputs(s) - _cells(s)),
  ),
  'meta_rnn_size': (
    ('lstm/linear/w', _inputs),
    (f'{_META_RNN}/lstm/linear/w', _cells),
    (f'{_META_RNN}/lstm/linear/b', _cells),
  ),
}
# Stacks built alike, and further sources of the width of their last layer.
_WIDTHS: Mapping[str, tuple[Sequence[_Stack], Sequence[_Source]]] = {
  'prediction_embedding': (
    [
      _linear(f'{m}/{e}') for m in ('lstm', _META_RNN) for e in ('mlp', 'mlp_1')
    ],
    (),
  ),
  'policy_channels': (
    [_block(f'{module}/sequential') for module in ('lstm', _META_RNN)],
    (),
  ),
  'policy_target_channels': (
    [_block('lstm/sequential_1')],
    [('lstm/linear_4/w', _inputs)],
  ),
}


def _likely_config(shapes: _Shapes) -> meta_network.MetaNetworkConfig:
  """The sizes that most tensors agree on; as in Disco103 where none tells."""
  default = meta_network.MetaNetworkConfig()
  sizes: dict[str, Any] = {
    name: _vote(shapes, sources, getattr(default, name))
    for name, sources in _SIZES.items()
  }
  widths: dict[str, Any] = {
    name: _widths(shapes, stacks, last)
    for name, (stacks, last) in _WIDTHS.items()
  }
  return dataclasses.replace(default, **sizes, **widths)


def _vote(shapes: _Shapes, sources: Iterable[_Source], default: int) -> int:
  votes: collections.Counter[int] = collections.Counter()
  for key, size_of in sources:
    with contextlib.suppress(KeyError, IndexError):
      votes[size_of(shapes[key])] += 1
  likely = (size for size, _ in votes.most_common() if size > 0)
  return next(likely, default)


def _widths(
  shapes: _Shapes, stacks: Sequence[_Stack], last: Sequence[_Source]
) -> tuple[int, ...]:
  depths = collections.Counter(_depth(shapes, stack) for stack in stacks)
  depth = depths.most_common(1)[0][0]
  return tuple(
    _vote(
      shapes,
      [
        *((f'{stack(i)}/{p}', _outputs) for stack in stacks for p in 'wb'),
        *(last if i == depth - 1 else ()),
      ],
      default=1,
    )
    for i in range(depth)
  )


def _depth(shapes: _Shapes, stack: _Stack) -> int:
  """Number of layers, counted up to the first that is not there."""

  def is_missing(i: int) -> bool:
    return not any(f'{stack(i)}/{p}' in shapes for p in 'wb')

  return next(filter(is_missing, itertools.count()))


# Between nested and flat.


def _flatten(params: types.Params, where: str) -> dict[str, Any]:
  flat = {}
  for module, leaves in params.items():
    if not isinstance(leaves, Mapping):
      raise WeightsError(
        f'{where}: {module}: found {type(leaves).__name__}, expected a mapping '
        'from parameter names to arrays. Likely flattened: parameters are '
        'nested as {module: {parameter: array}}.'
      )
    for name, value in leaves.items():
      flat[f'{module}/{name}'] = value
  return flat


def _nest(arrays: Mapping[str, np.ndarray]) -> types.Params:
  # NumPy arrays pass for JAX arrays wherever parameters are used.
  params: dict[str, dict[str, Any]] = {}
  for key, array in arrays.items():
    module, _, name = key.rpartition('/')
    params.setdefault(module, {})[name] = array
  return params
