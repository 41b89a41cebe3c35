"""Writes and reads JSON files: settings, summaries and reports."""

from collections.abc import Mapping
import json
import math
from typing import Any

import numpy as np

from disco_rl.runtime import files

# The summary of a report on a thousand runs has a few megabytes.
_MAX_BYTES = 2**26


def write(path: files.PathLike, tree: object) -> None:
  """Writes a tree as JSON atomically, keeping the order of its keys.

  Non-finite numbers are written as null, because JSON does not have them.
  """
  text = json.dumps(_to_json(tree), indent=2, allow_nan=False)
  with files.replacing(path) as temporary:
    temporary.write_text(text + '\n', encoding='utf-8')


def read(path: files.PathLike) -> dict[str, Any]:
  """Reads a mapping that was written by `write`.

  Raises:
    OSError: The file does not exist or cannot be read.
    files.WorkdirError: The file is damaged or does not contain a JSON object.
  """
  try:
    content = json.loads(files.read_limited(path, _MAX_BYTES).decode())
  # Thousands of nested brackets raise a RecursionError.
  except (ValueError, RecursionError) as error:
    raise files.damaged(path, f'text that is not JSON ({error})') from error
  if not isinstance(content, dict):
    kind = type(content).__name__
    raise files.damaged(path, f'{kind}, not an object {{...}}')
  return content


def _to_json(tree: object) -> object:
  if isinstance(tree, Mapping):
    return {key: _to_json(value) for key, value in tree.items()}
  if isinstance(tree, list | tuple):
    return [_to_json(value) for value in tree]
  if isinstance(tree, np.ndarray | np.generic):
    return _to_json(tree.tolist())
  if isinstance(tree, float) and not math.isfinite(tree):
    return None
  return tree
