"""Tests of launch.showcase and of the page that it writes."""

import base64
import collections
from collections.abc import Mapping
import dataclasses
import html
import io
import pathlib
import re
import shlex
import shutil
from typing import Any
from unittest import mock

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
from disco_rl.evaluation import showcase as showcase_lib
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting
from disco_rl.training import learning_curves
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import cards
from launch import showcase


@pytest.fixture(scope='module')
def run(discovery: pathlib.Path) -> pathlib.Path:
  """The folder of a discovery, with the page about its result."""
  call(discovery)
  return discovery


@pytest.fixture(scope='module')
def discovery(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A folder as a discovery on Catch leaves it."""
  workdir = tmp_path_factory.mktemp('showcase') / 'run'
  workdir.mkdir()
  settings = meta_trainer.complete(
    {**quickstart.get_config().to_dict(), **small_runs.SETTINGS}
  )
  json_files.write(workdir / 'config.json', settings)
  json_files.write(workdir / 'summary.json', {'meta_steps': 7})
  for name in ('initial_rule.npz', 'rule.npz'):
    small.save(workdir / name, small.arrays())
  card = cards.Card(
    name='run',
    settings=settings,
    agents=8,
    meta_steps=7,
    environment_steps=12345,
    seed=3,
    versions={'jax': '1.2'},
    compute={'seconds': 61.2, 'devices': 2, 'kind': 'cpu'},
  )
  for name in ('initial_rule.json', 'rule.json'):
    json_files.write(workdir / name, dataclasses.asdict(card))
  with metrics.MetricsWriter(
    workdir / 'held_out', 0, 'meta_step', 'environment'
  ) as writer:
    for step, value in ((0, -0.25), (7, 0.75)):
      row = {'meta_step': step, 'environment': 'catch/4x3', 'return': value}
      writer.write([row])
  figure, _ = plotting.panel('meta-steps', 'return')
  plotting.save(figure, workdir / 'curves.png')
  return workdir


def call(workdir: pathlib.Path) -> None:
  launching.call_main(showcase, workdir=str(workdir), updates=3, agents=2)


def runs_of(workdir: pathlib.Path) -> dict[str, pathlib.Path]:
  """Label on the page -> folder of the run."""
  paths = workdir.glob('showcase/7/catch-4x3/*/metrics.csv')
  return {path.parent.name.replace('_', ' '): path.parent for path in paths}


@pytest.mark.slow
def test_the_page_has_the_scores_of_each_rule(run: pathlib.Path) -> None:
  page = (run / 'index.html').read_text()
  folders = runs_of(run)
  assert len(folders) == 3
  for label, folder in folders.items():
    _, returns = learning_curves.read_curve(folder / 'metrics.csv')
    row = f'<td>{label}</td><td>{np.mean(returns[:, -1]):.2f}</td>'
    assert row in page
    assert f'<td>{np.min(returns[:, -1]):.2f}</td></tr>' in page
  for name, value in {
    'agents': '8',
    'environment steps': '12,345',
    'seed': '3',
    'time': '61 s on 2 x cpu',
    'versions': 'jax 1.2',
  }.items():
    assert f'<tr><td>{name}</td><td>{value}</td></tr>' in page
  assert '<td>-0.25</td><td>0.75</td></tr>' in page
  assert 'Random play earns -0.33 on average' in page


@pytest.mark.slow
def test_the_page_needs_no_other_file(run: pathlib.Path) -> None:
  page = (run / 'index.html').read_text()
  sources = re.findall(r'(?:src|href)="(.{0,40})', page)
  assert len(sources) == 5
  assert all(source.startswith('data:image/') for source in sources)
  films = re.findall('data:image/gif;base64,([^"]+)', page)
  assert len(films) == 3
  for film in films:
    with Image.open(io.BytesIO(base64.b64decode(film))) as picture:
      # Six episodes of four observations, the last of each for longer.
      assert picture.n_frames > 6
      # Pixels of 4 x 3 cells.
      assert picture.height / 4 == picture.width / 3


def trained(label: str, *returns: float) -> showcase_lib.Trained:
  curve = 10.0 * np.arange(1, 6), np.array([returns, returns])
  return showcase_lib.Trained(label, curve)


def test_the_verdict() -> None:
  agents = [
    trained('before discovery', -0.6, -0.6, -0.6, -0.6, -0.6),
    trained('discovered', -0.6, 0.2, 0.7, 0.9, 1.0),
    trained('actor-critic', -0.6, 0.5, 0.9, 0.9, 0.98),
  ]
  shares, times = showcase_lib.verdict(agents, is_catch=True)
  assert shares == (
    'After 50 environment steps agents catch this share of the balls: 20% with '
    'the rule as it was before discovery, 100% with the discovered rule, 99% '
    'with actor-critic (designed by hand).'
  )
  assert times == (
    'Their mean return is above 0.84 after 40 steps with the discovered '
    'rule and 30 steps with actor-critic (designed by hand).'
  )
  alike = [trained('before discovery', 2.0, 2.0), trained('discovered', 2, 2)]
  assert len(showcase_lib.verdict(alike, is_catch=False)) == 1


_CATCHES = 'Catch, on small boards of random sizes. Below, new agents learn '


@pytest.mark.parametrize(
  ('on', 'environment', 'sentence'),
  [
    (
      'catch/4x3,catch/5x4',
      'catch',
      'in catch/4x3, catch/5x4. Below, new agents learn catch, in which the',
    ),
    ('random_catch', 'catch/5x4', f'in {_CATCHES}catch/5x4.'),
    ('random_catch', 'catch/6x5', f'in {_CATCHES}catch/6x5, in which the'),
    ('catch, minatar', 'minatar/asterix', 'agents learn minatar/asterix.'),
  ],
)
def test_a_page_without_pictures(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  on: str,
  environment: str,
  sentence: str,
) -> None:
  failing = mock.Mock(side_effect=OSError('no font'))
  monkeypatch.setattr(plotting, 'save', failing)
  page = tmp_path / 'index.html'
  showcase_lib.write(
    page,
    showcase_lib.Showcase(
      discovery=collections.defaultdict(str),
      on=on,
      meta_curves=tmp_path / 'missing.png',
      held_out=(np.array([1]), {'catch/4x3': np.array([0.5])}),
      rule_meta_step=1,
      environment=environment,
      trained=[trained('discovered', 0.0, 0.1, 0.3, 0.5, 0.9)],
      no_film='no display',
      commands=[],
    ),
  )
  text = page.read_text()
  assert '<td>0.90</td>' in text and '<img' not in text
  assert sentence in text
  assert '<p class="result">Result.' in text


def test_a_page_in_words_numbers_and_films(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  draw = mock.Mock(return_value='figure')
  monkeypatch.setattr(learning_curves, 'draw', draw)
  save = mock.Mock(side_effect=lambda _, path: path.write_bytes(b'curves'))
  monkeypatch.setattr(plotting, 'save', save)
  film, curves = tmp_path / 'film.gif', tmp_path / 'meta.png'
  film.write_bytes(b'film')
  curves.write_bytes(b'meta')
  steps = np.array([1000.0, 2000.0])
  agents = [
    showcase_lib.Trained(
      'discovered',
      (steps, np.array([[-0.5, 0.5], [0.0, 0.75], [0.5, 1.0]])),
      (film, 0.875),
    ),
    showcase_lib.Trained('actor-critic', (steps, np.array([[0.5, 0.25]]))),
  ]
  page = tmp_path / 'index.html'
  showcase_lib.write(
    page,
    showcase_lib.Showcase(
      discovery={'began as': 'random numbers', 'meta-steps': '1,200'},
      on='catch/4x3',
      meta_curves=curves,
      held_out=(
        np.array([0, 600, 1200]),
        {'catch/5x4': np.array([-0.5, 0.25, 0.0])},
      ),
      rule_meta_step=600,
      environment='catch/5x4',
      trained=agents,
      no_film=None,
      commands=[
        ('Train an agent:', 'disco-rl train'),
        ('Play:', 'disco-rl play'),
      ],
    ),
  )
  labels, title = draw.call_args.args
  assert title == 'catch/5x4'
  assert {name: x[1].shape for name, x in labels.items()} == {
    'discovered': (3, 2),
    'actor-critic': (1, 2),
  }
  save.assert_called_once_with('figure', tmp_path / 'showcase.png')
  text = page.read_text()
  tables = [
    [re.findall('<t[dh]>(.*?)</t[dh]>', x) for x in re.findall('<tr>.*', y)]
    for y in re.findall('<table>.*?</table>', text, re.DOTALL)
  ]
  scores, held_out, run = tables
  assert scores[0] == ['rule', 'mean return', '95% interval', 'worst agent']
  assert scores[1] == ['discovered', '0.75', '0.50 to 1.00', '0.50']
  assert scores[2] == ['actor-critic', '0.25', '', '0.25']
  assert held_out == [
    ['steps', '0', '600', '1,200'],
    ['catch/5x4', '-0.50', '0.25', '0.00'],
    ['', '', 'kept', ''],
  ]
  assert run == [
    ['the run', ''],
    ['began as', 'random numbers'],
    ['meta-steps', '1,200'],
  ]
  sentences = (
    '<h1>A rule was discovered',
    'It began as random numbers, and was changed in 1,200 steps',
    'high returns in catch/4x3. Below, new agents learn catch/5x4, in which '
    'the rule was not discovered, but by which it was chosen.',
    'here of 5 rows and 4 columns',
    'Random play earns -0.50 on',
    'After 2,000 environment steps agents catch this share',
    'The first agent of each rule at the end of training:',
    'discovered: mean return 0.88 in these episodes',
    '<h2>In numbers',
    'Returns of 3 new agents with each rule, after 2,000 environment steps',
    'Their learning curves.',
    '<h2>How it was discovered',
    'The rule after 600 of 1,200 steps is kept',
    'reset at the end of their lifetimes',
    '<h2>What to try next',
    *('Train an agent:', 'disco-rl train', 'Play:', 'disco-rl play'),
  )
  places = [html.unescape(text).find(x) for x in sentences]
  assert -1 not in places and places == sorted(places)
  pictures = re.findall('data:image/(gif|png);base64,([^"]+)', text)
  assert [(kind, base64.b64decode(x)) for kind, x in pictures] == [
    ('gif', b'film'),
    ('png', b'curves'),
    ('png', b'meta'),
  ]


@pytest.mark.parametrize(
  ('name', 'found'),
  [
    ('catch', (8, 8, -0.75)),
    ('catch/6x5', (6, 5, -0.6)),
    ('catchy', None),
  ],
)
def test_boards(name: str, found: tuple[Any, ...] | None) -> None:
  board = showcase_lib.board(name)
  assert found == (board and tuple(board.values()))


@pytest.mark.slow
def test_agents_are_like_those_of_the_population(run: pathlib.Path) -> None:
  steps = {}
  for label, folder in runs_of(run).items():
    settings = json_files.read(folder / 'config.json')
    assert settings['environment'] == 'catch/4x3'
    if label == showcase_lib.HAND_MADE:
      # It has the data and networks that suit it.
      names = ('unroll_length', 'activation', 'separate_torsos', 'discount')
      wanted: Mapping[str, Any] = actor_critic.ActorCritic.recommended
    else:
      names = ('unroll_length', 'hidden_sizes', 'num_bins', 'discount')
      wanted = json_files.read(run / 'config.json')
      assert settings['updates'] == 3
    assert [settings[x] for x in names] == [wanted[x] for x in names]
    steps[label] = learning_curves.read_curve(folder / 'metrics.csv')[0][-1]
  # Up to a rollout of actor-critic is added.
  assert 0 <= steps[showcase_lib.HAND_MADE] - steps[showcase_lib.BEFORE] < 128


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


def test_commands_name_folders_with_spaces() -> None:
  run = pathlib.Path('my runs/quick')
  found = mock.Mock(folder=run / 'found')
  flags.FLAGS.mark_as_parsed()
  commands = [text for _, text in showcase._commands(run, [found, found])]
  assert shlex.split(commands[0])[2] == '--workdir=my runs/quick/found'
  assert shlex.split(commands[1])[2] == '--workdir=my runs/quick'


@pytest.mark.slow
def test_nothing_is_repeated(run: pathlib.Path) -> None:
  rows = {path: path.stat().st_mtime_ns for path in run.rglob('metrics.csv')}
  (run / 'index.html').unlink()
  call(run)
  assert (run / 'index.html').exists()
  assert rows == {
    path: path.stat().st_mtime_ns for path in run.rglob('metrics.csv')
  }


def test_a_folder_without_a_finished_discovery(tmp_path: pathlib.Path) -> None:
  message = launching.error_of_main(showcase, workdir=str(tmp_path))
  assert 'holds no finished run of disco-rl meta-train' in message
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('steps', ['../../outside', None, -1, 1.5, [], True])
def test_a_summary_does_not_name_folders_elsewhere(
  steps: object, tmp_path: pathlib.Path, discovery: pathlib.Path
) -> None:
  (tmp_path / 'run').mkdir()
  for name in ('config.json', 'rule.json', 'rule.npz'):
    shutil.copy(discovery / name, tmp_path / 'run')
  json_files.write(tmp_path / 'run' / 'summary.json', {'meta_steps': steps})
  message = launching.error_of_main(showcase, workdir=f'{tmp_path / "run"}')
  assert re.search('holds no finished run|meta_steps=.* must be', message)
  assert not (tmp_path / 'run' / 'showcase').exists()
  assert [x.name for x in tmp_path.iterdir()] == ['run']
