"""The flag that says how many runs go on at a time."""

from absl import flags

AT_ONCE = flags.DEFINE_integer(
  'processes', 1, 'Runs at the same time.', lower_bound=1
)
