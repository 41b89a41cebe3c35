"""Python's search for cyclic garbage."""

import gc


def collect_rarely() -> None:
  """Makes Python look for cyclic garbage less often, from now on.

  Tracing makes many small objects that stay. To look through them again and
  again took 27% of the time of tracing a meta-step of the quick start. For
  programs, not for libraries: it holds for the whole process.
  """
  gc.set_threshold(50_000, 20, 50)
