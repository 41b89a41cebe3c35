"""Weights of update rules: published ones by name, others by path.

A file is an npz archive of float32 arrays under the keys `module/parameter`.
Keys, shapes and values are checked when they are read and when written. The
parameters and their shapes tell the network, that of a variant as well; numbers
under `settings/NAME` tell what they do not.
"""

from collections.abc import Mapping
import functools
import itertools
import math
import os
import re
from typing import Any

import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.runtime import files
from disco_rl.runtime import npz
from disco_rl.update_rules import sources

DIRECTORY_VARIABLE = sources.DIRECTORY_VARIABLE
# Disco103 takes 3 MB.
MAX_BYTES = 2**30
_MAX_LISTED = 8
_META_RNN = 'lstm/~/meta_lstm/~unroll'
_TRANSFORMER = 'lstm/transformer'

# Fields of `disco.Disco` that a file may hold.
SETTINGS = ('aux_pi_cost',)
_SETTINGS = 'settings'

WeightsError = sources.WeightsError

# Key `module/parameter` -> shape.
_Shapes = Mapping[str, tuple[int, ...]]

# Tracing the network takes a good part of a second.
_parameter_shapes = functools.lru_cache(maxsize=8)(
  meta_network.parameter_shapes
)


def load(name_or_path: files.PathLike) -> types.Params:
  """Loads the weights of an update rule as float32 NumPy arrays.

  Args:
    name_or_path: the name of a published or shipped rule ('disco103'), a path,
      or an address on the Hugging Face Hub; see `sources.find`.

  Returns:
    Module name -> parameter name -> array; shapes are those of
    `meta_network.parameter_shapes(infer_config(params))`.

  Raises:
    OSError, ValueError, ImportError: as of `sources.find`; or the file cannot
      be opened.
    WeightsError: the file is damaged, or holds something else.
  """
  return load_with_settings(name_or_path)[0]


def load_with_settings(
  name_or_path: files.PathLike,
) -> tuple[types.Params, dict[str, float]]:
  """As `load`; also returns those of the `SETTINGS` that the file holds."""
  path = os.fspath(name_or_path)
  if '\0' in path:
    raise ValueError(f'{path!r} has a character that no path may have.')
  path = sources.find(path)
  try:
    arrays = npz.read(path, lambda headers: _check(headers, path))
  except npz.ArchiveError as error:
    raise WeightsError(str(error)) from error
  params: dict[str, dict[str, Any]] = {}
  for key, array in _to_float32(arrays, path).items():
    module, _, name = key.rpartition('/')
    params.setdefault(module, {})[name] = array
  settings = params.pop(_SETTINGS, {})
  # NumPy arrays pass for JAX arrays wherever parameters are used.
  return params, {name: float(x) for name, x in settings.items()}


def save(
  path: files.PathLike,
  params: types.Params,
  settings: Mapping[str, float] | None = None,
) -> None:
  """Writes weights that `load` reads back bit for bit; see `npz.write`.

  Args:
    path: of the file, ending in '.npz'.
    params: the parameters of a meta-network, of any floating type.
    settings: some of the `SETTINGS`, with their values.

  Raises:
    ValueError: the path does not end in '.npz'.
    WeightsError: `params` are not the weights of an update rule; nothing is
      written.
  """
  where = os.fspath(path)
  arrays = _flatten(params, where)
  for name, value in (settings or {}).items():
    arrays[f'{_SETTINGS}/{name}'] = np.asarray(value, np.float32)
  _check(arrays, where)
  npz.write(path, _to_float32(arrays, where))


def infer_config(params: types.Params) -> meta_network.MetaNetworkConfig:
  """Returns the sizes of the meta-network that these parameters belong to.

  Raises:
    WeightsError: a parameter is missing, is one too many, or has a shape that
      does not fit the others.
  """
  where = 'the parameters'
  arrays = _flatten(params, where)
  return _infer_config({k: x.shape for k, x in arrays.items()}, where)


def _check(arrays: Mapping[str, Any], where: str) -> None:
  """Checks arrays, or their headers, against those of a meta-network."""
  shapes = {key: x.shape for key, x in arrays.items()}
  for name in SETTINGS:
    if shapes.get(f'{_SETTINGS}/{name}') == ():
      del shapes[f'{_SETTINGS}/{name}']
  _infer_config(shapes, where)
  for key, x in arrays.items():
    if not jnp.issubdtype(x.dtype, jnp.floating):
      raise WeightsError(
        f'{where}: {key} is of type {x.dtype}, expected float32. Likely '
        'quantised, or not a parameter of a rule.'
      )


def _to_float32(
  arrays: Mapping[str, np.ndarray], where: str
) -> dict[str, np.ndarray]:
  with np.errstate(over='ignore'):
    result = {k: np.array(x, np.float32, order='C') for k, x in arrays.items()}
  for key, array in result.items():
    bad = array.size - np.count_nonzero(np.isfinite(array))
    if bad:
      raise WeightsError(
        f'{where}: {key} has {bad} values of {array.size} that are not finite '
        'in float32. Likely saved after training had diverged: take an earlier '
        'checkpoint.'
      )
  return result


def _flatten(params: types.Params, where: str) -> dict[str, np.ndarray]:
  if not isinstance(params, Mapping):
    raise WeightsError(
      f'{where}: found {params!r:.80}, expected parameters, nested as '
      '{module: {parameter: array}}; `load` returns those of a name.'
    )
  flat = {}
  for module, leaves in params.items():
    if not isinstance(leaves, Mapping):
      raise WeightsError(
        f'{where}: {module}: found {type(leaves).__name__}, expected a mapping '
        'from parameter names to arrays. Likely flattened: parameters are '
        'nested as {module: {parameter: array}}.'
      )
    flat.update(
      {f'{module}/{name}': np.asarray(x) for name, x in leaves.items()}
    )
  return flat


# Sizes.


def _infer_config(
  shapes: _Shapes, where: str
) -> meta_network.MetaNetworkConfig:
  """The network whose parameters have all of these shapes, and no others."""
  try:
    config = _read_sizes(shapes)
  except (LookupError, ValueError):
    # A tensor that sizes are read from differs from that of every network.
    config = meta_network.MetaNetworkConfig()
  expected = _parameter_shapes(config)
  # First those that are unknown, then those that are missing.
  keys = sorted(
    {*shapes, *expected}, key=lambda k: (k in expected, k in shapes, k)
  )
  differing = [k for k in keys if shapes.get(k) != expected.get(k)]
  if not differing:
    return config
  lines = [
    f'  {key}: found {shapes.get(key, "nothing")}, '
    f'expected {expected.get(key, "nothing")}\n'
    for key in differing[:_MAX_LISTED]
  ]
  if len(differing) > _MAX_LISTED:
    lines.append(f'  and {len(differing) - _MAX_LISTED} more\n')
  if not set(shapes) & set(expected):
    cause = 'the parameters of something else, such as an agent'
  elif set(shapes) != set(expected):
    cause = 'another architecture, or incomplete'
  else:
    cause = 'from rules of different sizes, or transposed ([inputs, outputs])'
  raise WeightsError(
    f'{where}: not the parameters of a meta-network with {config}:\n'
    f'{"".join(lines)}Likely {cause}. Save a rule with `weights.save`, or load '
    'a published one by name.'
  )


def _read_sizes(shapes: _Shapes) -> meta_network.MetaNetworkConfig:
  """Reads sizes from biases, each of the width of its layer, and from the gate.

  A variant may omit modules; a module counts as present if any of its
  parameters is.

  Raises:
    LookupError: one of these tensors is absent, or lacks an axis.
    ValueError: no network has such sizes.
  """
  if 4 * sum(map(math.prod, shapes.values())) > MAX_BYTES or any(
    not 0 < size <= MAX_BYTES for shape in shapes.values() for size in shape
  ):
    raise ValueError('An array is empty, or all are too large.')
  modules = {key.rpartition('/')[0] for key in shapes}
  has = lambda *names: any(name.startswith(names) for name in modules)
  sizes: dict[str, Any] = {'prediction_size': 0, 'meta_rnn_size': 0}
  if has('lstm/linear_2', 'lstm/linear_3', 'lstm/mlp'):
    embedding = 'lstm/mlp/~/linear'
    sizes['prediction_size'] = shapes['lstm/linear_2/b'][0]
    sizes['prediction_embedding'] = _widths(shapes, f'{embedding}_0', embedding)
  if has(_TRANSFORMER):
    sizes['transformer_layers'] = sum(
      re.fullmatch(f'{_TRANSFORMER}/attention_[0-9]+', module) is not None
      for module in modules
    )
    sizes['transformer_heads'] = shapes[f'{_TRANSFORMER}/attention_0/w'][2]
    sizes['lstm_size'] = shapes[f'{_TRANSFORMER}/inputs/b'][0]
  else:
    # The biases of four gates.
    sizes['lstm_size'] = shapes['lstm/lstm/linear/b'][0] // 4
  if 'lstm/linear' in modules or has(_META_RNN):
    sizes['meta_rnn_size'], sizes['lstm_size'] = shapes['lstm/linear/w']
    inputs = f'{_META_RNN}/mlp_2/~/linear_0'
    sizes['meta_rnn_input_size'] = shapes[f'{inputs}/b'][0]
  channels = 'lstm/sequential/conv1_d'
  target_channels = 'lstm/sequential_1/conv1_d'
  # Each action's channels, and their means over actions.
  without_q = 2 * meta_features.num_action_channels(
    has_y_and_z=bool(sizes['prediction_size']), has_q=False
  )
  return meta_network.MetaNetworkConfig(
    policy_channels=_widths(shapes, channels, channels),
    policy_target_channels=_widths(shapes, target_channels, target_channels),
    has_q=channels not in modules or shapes[f'{channels}/w'][1] != without_q,
    **sizes,
  )


def _widths(shapes: _Shapes, first: str, others: str) -> tuple[int, ...]:
  """Widths of the layers FIRST, OTHERS_1, OTHERS_2, ..."""
  modules = {key.rpartition('/')[0] for key in shapes}
  names = [first, *(f'{others}_{i}' for i in range(1, len(modules)))]
  layers = itertools.takewhile(modules.__contains__, names)
  return tuple(shapes[f'{layer}/b'][0] for layer in layers)
