"""Weights of update rules: published ones by name, any others by path.

A file is an npz archive of float32 arrays under the keys `module/parameter`.
What is read or written is checked in full: the keys and shapes against those of
a meta-network of the sizes that the arrays themselves imply, and every value.
"""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.networks import meta_network
from disco_rl.runtime import files
from disco_rl.update_rules import weights_format
from disco_rl.update_rules import weights_published
from disco_rl.update_rules import weights_structure

DIRECTORY_VARIABLE = weights_published.DIRECTORY_VARIABLE
WeightsError = weights_format.WeightsError


def load(name_or_path: files.PathLike) -> types.Params:
  """Weights of an update rule, as float32 NumPy arrays.

  A published rule is taken from the directory that DISCO_RL_WEIGHTS_DIR names;
  where that is not set, from the user's cache; else it is downloaded into the
  cache. Its SHA-256 is checked wherever it was found.

  Args:
    name_or_path: the name of a published rule ('disco103'), or a path; see
      `is_path`.

  Returns:
    Module name -> parameter name -> array; shapes are those of
    `meta_network.parameter_shapes(infer_config(params))`.

  Raises:
    FileNotFoundError: there is no such file; or DISCO_RL_WEIGHTS_DIR is set and
      the rule is not there.
    OSError: the download failed.
    ValueError: no rule is published under this name, or it is no path.
    WeightsError: the file is damaged, or holds something else.
  """
  path = os.fspath(name_or_path)
  if '\0' in path:
    raise ValueError(f'{path!r} has a character that no path may have.')
  if not is_path(path):
    path, data = weights_published.read(path)
  elif os.path.isdir(path):
    raise WeightsError(f'{path}: a directory; name the npz file in it.')
  else:
    data = pathlib.Path(path).read_bytes()
  return _nest(_check(weights_format.read(data, path), path))


def save(path: files.PathLike, params: types.Params) -> None:
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
  arrays = _check(_flatten(params, str(target)), str(target))
  target.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(target) as temporary, temporary.open('wb') as file:
    np.savez(file, **arrays)


def infer_config(params: types.Params) -> meta_network.MetaNetworkConfig:
  """Sizes of the meta-network that these parameters belong to.

  Raises:
    WeightsError: a parameter is missing, is one too many, or has a shape that
      does not fit the others.
  """
  where = 'the parameters'
  return weights_structure.infer_config(_shapes(_flatten(params, where)), where)


def is_path(text: str) -> bool:
  """Whether this is a path, not a name: it ends in .npz or has a separator."""
  separators = (os.sep, os.altsep or os.sep)
  return text.endswith('.npz') or any(s in text for s in separators)


def _check(arrays: Mapping[str, Any], where: str) -> dict[str, Any]:
  """The arrays in float32, if they are the parameters of a meta-network."""
  weights_structure.infer_config(_shapes(arrays), where)
  return {
    key: weights_format.to_float32(np.asarray(array), key, where)
    for key, array in arrays.items()
  }


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
  return {key: np.shape(array) for key, array in arrays.items()}


def _flatten(params: types.Params, where: str) -> dict[str, Any]:
  flat = {}
  for module, leaves in params.items():
    if not isinstance(leaves, Mapping):
      raise WeightsError(
        f'{where}: {module}: found {type(leaves).__name__}, expected a mapping '
        'from parameter names to arrays. Likely flattened: parameters are '
        'nested as {module: {parameter: array}}.'
      )
    flat.update({f'{module}/{name}': value for name, value in leaves.items()})
  return flat


def _nest(arrays: Mapping[str, Any]) -> types.Params:
  # NumPy arrays pass for JAX arrays wherever parameters are used.
  params: dict[str, dict[str, Any]] = {}
  for key, array in arrays.items():
    module, _, name = key.rpartition('/')
    params.setdefault(module, {})[name] = array
  return params
