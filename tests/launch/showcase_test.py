"""Tests of launch.showcase and of the page that it writes."""

import base64
import io
import pathlib
import re

from absl import flags
from absl.testing import flagsaver
import launching
import numpy as np
from PIL import Image
import pytest
import small

from benchmarks import small_runs
from configs import quickstart
from disco_rl.environments import suites
from disco_rl.evaluation import learning_curves
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting
from disco_rl.update_rules import weights
from launch import showcase

pytestmark = pytest.mark.usefixtures('quick_compilation')


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A folder as a discovery on Catch leaves it."""
  workdir = tmp_path_factory.mktemp('showcase') / 'run'
  workdir.mkdir()
  settings = {
    **quickstart.get_config().to_dict(),
    **small_runs.SETTINGS,
    'held_out_environments': 'catch/4x3',
  }
  metrics.write_json(workdir / 'config.json', settings)
  metrics.write_json(workdir / 'summary.json', {'meta_steps': 7})
  for name in ('initial_rule.npz', 'rule.npz'):
    weights.save(workdir / name, small.nest(small.arrays()))
  figure, _ = plotting.panel('meta-steps', 'return')
  plotting.save(figure, workdir / 'curves.png')
  call(workdir)
  return workdir


def call(workdir: pathlib.Path, **values: object) -> None:
  given = {'updates': 3, 'agents': 2, **values}
  flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(
    compilation_cache='off', workdir=str(workdir), **given
  ):
    showcase.main(['showcase'])


def runs_of(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
  """Label on the page -> folder of the run."""
  folders = [
    path.parent for path in workdir.glob('showcase/7/*/*/*/metrics.csv')
  ]
  return {
    {'initial_rule.npz': 'before discovery', 'rule.npz': 'discovered'}.get(
      pathlib.Path(rule).name, 'actor-critic'
    ): folder
    for folder in folders
    for rule in [metrics.read_json(folder / 'config.json')['rule']]
  }


def test_the_page_has_the_scores_of_each_rule(run: pathlib.Path) -> None:
  page = (run / 'index.html').read_text()
  folders = runs_of(run)
  assert len(folders) == 3
  for label, folder in folders.items():
    _, returns = learning_curves.read_curve(folder / 'metrics.csv')
    row = f'<td>{label}</td><td>{np.mean(returns[:, -1]):.2f}</td>'
    assert row in page
    assert f'<td>{np.min(returns[:, -1]):.2f}</td></tr>' in page
  assert '8 agents on catch/4x3, 7 meta-steps.' in page


def test_the_page_needs_no_other_file(run: pathlib.Path) -> None:
  page = (run / 'index.html').read_text()
  sources = re.findall(r'(?:src|href)="(.{0,40})', page)
  assert len(sources) == 4
  assert all(source.startswith('data:image/') for source in sources)
  films = re.findall('data:image/gif;base64,([^"]+)', page)
  assert len(films) == 2
  for film in films:
    with Image.open(io.BytesIO(base64.b64decode(film))) as picture:
      # Six episodes of four observations, the last of each for longer.
      assert picture.n_frames > 6
      # Pixels of 4 x 3 cells.
      assert picture.height / 4 == picture.width / 3


def test_agents_are_like_those_of_the_population(run: pathlib.Path) -> None:
  for folder in runs_of(run).values():
    settings = metrics.read_json(folder / 'config.json')
    for name in ('unroll_length', 'hidden_sizes', 'num_bins', 'discount'):
      want = metrics.read_json(run / 'config.json')[name]
      assert settings[name] == want
    assert settings['updates'] == 3
    assert settings['environment'] == 'catch/4x3'


def test_agents_see_what_those_of_the_population_saw() -> None:
  discovery = {
    **quickstart.get_config().to_dict(),
    'held_out_environments': 'minatar',
    'preprocessing': {'atari': {'frame_stack': 2}},
  }
  flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver():
    settings = showcase._settings(discovery)
  assert settings['environment'] == suites.expand('minatar')[0]
  assert settings['preprocessing'] == {'atari': {'frame_stack': 2}}


def test_nothing_is_repeated(run: pathlib.Path) -> None:
  rows = {path: path.stat().st_mtime_ns for path in run.rglob('metrics.csv')}
  (run / 'index.html').unlink()
  call(run)
  assert (run / 'index.html').exists()
  assert rows == {
    path: path.stat().st_mtime_ns for path in run.rglob('metrics.csv')
  }


def test_a_folder_without_a_finished_discovery(tmp_path: pathlib.Path) -> None:
  with pytest.raises(SystemExit) as caught:
    call(tmp_path)
  message = launching.message_of(caught.value)
  assert 'holds no finished run of launch.meta_train' in message
  assert list(tmp_path.iterdir()) == []
