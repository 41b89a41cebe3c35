"""The flag that names the folder of a run."""

from absl import flags

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
