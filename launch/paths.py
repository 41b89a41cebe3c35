"""Flags that name files and folders."""

import os
from typing import Any

from absl import flags

# Flags are those of the module that calls `define_path`.
flags.disclaim_key_flags()


class _PathParser(flags.ArgumentParser[str]):
  """Replaces ~, which shells leave after an equals sign."""

  def parse(self, argument: str) -> str:
    """The path."""
    return os.path.expanduser(argument)


def define_path(
  name: str, meaning: str, required: bool = False
) -> flags.FlagHolder[Any]:
  """Defines a flag whose value is a path, or None where it is not given."""
  parser = _PathParser()
  return flags.DEFINE(parser, name, None, meaning, required=required)
