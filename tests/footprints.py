"""Observations for every torso, and the memory that XLA reports."""

from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments.host import nethack
from disco_rl.runtime import compilation


def nethack_observation(frames: int) -> types.PyTree:
  """Returns the shapes of NetHack's observations with stacked frames."""
  shapes = {'glyphs': (21, 79), 'blstats': (27,), 'message': (256,)}
  return {
    key: jax.ShapeDtypeStruct((*shape, frames), nethack.OBSERVATION_TYPES[key])
    for key, shape in shapes.items()
  }


_IMAGE = jax.ShapeDtypeStruct((20, 20, 4), np.uint8)
OBSERVATIONS = {
  'mlp': jax.ShapeDtypeStruct((2_000,), np.uint8),
  'impala': _IMAGE,
  'resnet': _IMAGE,
  'nethack': nethack_observation(2),
}


def reported_bytes(call: compilation.Call) -> int:
  """Returns the bytes of a running program, with arguments and results."""
  program, arguments = call
  usage: Any = program.compile(*arguments).memory_analysis()
  return (
    usage.temp_size_in_bytes
    + usage.argument_size_in_bytes
    + usage.output_size_in_bytes
    - usage.alias_size_in_bytes
  )
