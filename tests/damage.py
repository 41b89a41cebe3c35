"""Damaged files for property tests."""

from collections.abc import Callable
import pathlib
from typing import Any

import hypothesis
from hypothesis import strategies as st

FEW = hypothesis.settings(
  max_examples=60,
  deadline=None,
  derandomize=True,
  database=None,
  # Examples are small; only the first trace is slow.
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
  """Draws damaged content: cut, changed, with bytes removed, or random."""
  place = st.integers(0, len(content))
  start, end = sorted((draw(place), draw(place)))
  match draw(st.sampled_from(('foreign', 'short', 'bit', 'lack', 'changed'))):
    case 'foreign':
      return draw(st.binary(max_size=200))
    case 'short':
      return content[:end]
    case 'bit':
      start = min(start, len(content) - 1)
      flipped = content[start] ^ 1 << draw(st.integers(0, 7))
      return content[:start] + bytes([flipped]) + content[start + 1 :]
    case 'lack':
      return content[:start] + content[end:]
  other = draw(st.binary(min_size=1, max_size=20))
  return content[:start] + other + content[start + len(other) :]


def outcome(
  read: Callable[[], Any], path: pathlib.Path, error: type[Exception]
) -> Any:
  """Returns what `read` returns; None if it raises the documented error."""
  try:
    return read()
  except error as caught:
    assert type(caught) is error
    assert str(path) in str(caught)
    return None
