"""A run that tests of launchers share."""

import pathlib

from pretending import Pretended
import pytest
from train_runs import CATCH
from train_runs import launch


@pytest.fixture(scope='session')
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Run of two agents with checkpoints after 10 and 20 updates; read only."""
  workdir = tmp_path_factory.mktemp('evaluate') / 'run'
  launch(workdir, *CATCH)
  return workdir


@pytest.fixture
def pretended(
  tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Pretended:
  return Pretended(tmp_path_factory.mktemp('made') / 'runs', monkeypatch)
