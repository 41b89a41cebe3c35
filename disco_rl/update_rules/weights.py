"""Reads and writes the weights of update rules.

A file is an npz archive of float32 arrays under the keys `module/parameter`.
Keys, shapes and values are checked on reading and on writing. The note of a
file contains the version of the format, the sizes of the network, and settings
that belong to the parameters. A file without a note has version 0, like the
published file of Disco103: its network has the published sizes.
"""

from collections.abc import Mapping
import dataclasses
import functools
import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.networks import meta_network
from disco_rl.runtime import files
from disco_rl.runtime import npz
from disco_rl.runtime import versions
from disco_rl.update_rules import sources

_PUBLISHED = meta_network.MetaNetworkConfig()
# The largest network that is traced for a file.
_MAX_LAYERS, _MAX_SIZE = 50, 2**16
_MAX_LISTED = 8

# The version of the format that `save` writes.
VERSION = 1
# Fields of `disco.Disco` that a file may contain.
SETTINGS = ('aux_pi_cost',)

WeightsError = sources.WeightsError

# Key `module/parameter` -> shape.
_Shapes = Mapping[str, tuple[int, ...]]

# Tracing the network takes up to a second.
_parameter_shapes = functools.lru_cache(maxsize=8)(
  meta_network.parameter_shapes
)


def load(name_or_path: files.PathLike) -> types.Params:
  """Loads the weights of an update rule as float32 NumPy arrays.

  Args:
    name_or_path: The name of a published or shipped rule ('disco103'), a path,
      or an address on the Hugging Face Hub. `sources.locate` finds the file.

  Returns:
    Module name -> parameter name -> array.

  Raises:
    OSError, ValueError, ImportError: `sources.locate` failed, or the file can
      be opened.
    WeightsError: The file is damaged, or contains something else.
  """
  return load_with_config(name_or_path)[0]


def load_with_config(
  name_or_path: files.PathLike,
) -> tuple[types.Params, meta_network.MetaNetworkConfig, dict[str, float]]:
  """Loads weights, the sizes of the network, and the file's `SETTINGS`."""
  path = os.fspath(name_or_path)
  if '\0' in path:
    raise ValueError(f'{path!r} contains a null character, which no path may.')
  path = sources.locate(path)

  def check(
    headers: Mapping[str, npz.Header], note: Mapping[str, object]
  ) -> None:
    try:
      _check(headers, _read_note(note, path)[0], path)
    except WeightsError as error:
      if note:
        raise
      raise WeightsError(
        f'{error} A file without sizes has those of Disco103, but version 0.1 '
        'of disco_rl wrote rules of all sizes without them.'
      ) from error

  try:
    arrays, note = npz.read(path, check)
  except npz.ArchiveError as error:
    raise WeightsError(str(error)) from error
  params: dict[str, dict[str, Any]] = {}
  for key, array in _to_float32(arrays, path).items():
    module, _, name = key.rpartition('/')
    params.setdefault(module, {})[name] = array
  # NumPy arrays can be used like JAX arrays.
  return params, *_read_note(note, path)


def save(
  path: files.PathLike,
  params: types.Params,
  config: meta_network.MetaNetworkConfig = _PUBLISHED,
  settings: Mapping[str, float] | None = None,
) -> None:
  """Writes weights as float32, atomically; `load` returns the same values.

  Args:
    path: The file, ending in '.npz'.
    params: The parameters of a meta-network, of any floating type.
    config: The sizes of the meta-network; by default, those of Disco103.
    settings: Values of some of the `SETTINGS`.

  Raises:
    ValueError: The path does not end in '.npz'.
    WeightsError: `params` are not the weights of such a network; nothing is
      written.
  """
  where = os.fspath(path)
  arrays = _flatten(params, where)
  _check(arrays, config, where)
  note = {
    'version': VERSION,
    'disco_rl': versions.present(),
    'network': dataclasses.asdict(config),
    'settings': settings or {},
  }
  npz.write(path, _to_float32(arrays, where), note)


def _read_note(
  note: Mapping[str, Any], where: str
) -> tuple[meta_network.MetaNetworkConfig, dict[str, float]]:
  """Parses the network and the settings in the note of a file."""
  if not note:
    return _PUBLISHED, {}
  program = note.get('disco_rl')
  if note.get('version') != VERSION:
    raise WeightsError(
      f'{where} has version {note.get("version")} of the format, but this '
      f'program reads version {VERSION}: use {versions.written_by(program)}, '
      'which wrote it.'
    )
  try:
    network: dict[str, Any] = {
      name: tuple(x) if isinstance(x, list) else x
      for name, x in note['network'].items()
    }
    settings = {name: float(x) for name, x in note['settings'].items()}
    if unknown := settings.keys() - {*SETTINGS}:
      raise ValueError(f'unknown settings {sorted(unknown)}')
    return meta_network.MetaNetworkConfig(**network), settings
  # The note may contain anything.
  except (AttributeError, LookupError, TypeError, ValueError) as error:
    raise WeightsError(
      f'{where} is not a rule, its note is damaged, or '
      f'{versions.written_by(program)} wrote settings that version '
      f'{versions.present()} does not have: {error}'
    ) from error


def _check(
  arrays: Mapping[str, Any], config: meta_network.MetaNetworkConfig, where: str
) -> None:
  """Compares arrays, or their headers, with a meta-network's parameters."""
  _check_shapes({key: x.shape for key, x in arrays.items()}, config, where)
  for key, x in arrays.items():
    if not jnp.issubdtype(x.dtype, jnp.floating):
      raise WeightsError(
        f'{where}: {key} is of type {x.dtype}, expected float32. Likely '
        'quantized, or not a parameter of a rule.'
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
      '{module: {parameter: array}}; `load` returns those of a named rule.'
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


def _check_shapes(
  shapes: _Shapes, config: meta_network.MetaNetworkConfig, where: str
) -> None:
  """Raises WeightsError if these are not the parameters of the network."""
  expected = _expected(config, len(shapes), where)
  # Unknown keys first, then missing ones, then wrong shapes.
  keys = sorted(
    {*shapes, *expected}, key=lambda k: (k in expected, k in shapes, k)
  )
  differing = [k for k in keys if shapes.get(k) != expected.get(k)]
  if not differing:
    return
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


def _expected(
  config: meta_network.MetaNetworkConfig, number: int, where: str
) -> _Shapes:
  """Returns the shapes of a network's parameters.

  Raises WeightsError if it is too large for a file with `number` arrays.
  """
  sizes = dataclasses.astuple(config)
  widths = [x for x in sizes if isinstance(x, tuple)]
  layers = sum(map(len, widths)) + config.transformer_layers
  largest = max(max((*x, 0)) if isinstance(x, tuple) else x for x in sizes)
  if layers > max(number, _MAX_LAYERS) or largest > _MAX_SIZE:
    raise WeightsError(f'{where}: no rule has a network as large as {config}.')
  return _parameter_shapes(config)
