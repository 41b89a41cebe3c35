"""A run that tests of launchers share."""

import pathlib

from evaluating import CATCH
from evaluating import launch
import pytest


@pytest.fixture(scope='session')
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Of two agents with checkpoints after 10 and 20 updates; read only."""
  workdir = tmp_path_factory.mktemp('evaluate') / 'run'
  launch(workdir, *CATCH)
  return workdir
