"""The flag that names the folder of a run."""

from launch.paths import define_path

WORKDIR = define_path('workdir', 'Folder of the run.')
