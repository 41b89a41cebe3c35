"""The flag that chooses the form of what is printed."""

from absl import flags

JSON = flags.DEFINE_bool('json', False, 'Prints JSON instead of a table.')
