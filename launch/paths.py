"""Flags that name files and folders."""

from typing import Any

from absl import flags

from disco_rl import config as config_lib

# Flags are those of the module that calls `define_path`.
flags.disclaim_key_flags()


class _PathParser(flags.ArgumentParser[str]):
  """Replaces ~, which shells leave after an equals sign."""

  def parse(self, argument: str) -> str:
    """The path; raises ValueError as `config.local`."""
    return config_lib.local(argument)


def define_path(
  name: str, meaning: str, required: bool = False
) -> flags.FlagHolder[Any]:
  """Defines a flag whose value is a path, or None where it is not given."""
  parser = _PathParser()
  return flags.DEFINE(parser, name, None, meaning, required=required)
