"""The documentation: it builds, its links lead somewhere, its code runs."""

from collections.abc import Iterator
import importlib
from importlib import metadata
import importlib.util
import json
import pathlib
import re
import shlex
import shutil
import subprocess
from types import ModuleType
from typing import Any

import launching
import numpy as np
import pytest

from configs import evaluate
import disco_rl
from disco_rl import __main__ as command_lib
from disco_rl import extras
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources
from launch import common
from launch import sweep

_ROOT = launching.REPOSITORY
_README = _ROOT / 'README.md'
_PAGES = sorted((_ROOT / 'docs').glob('*.md'))
_TEXTS = [_README, *_PAGES]
_LAUNCHERS = {
  'launch.train': training_config.config_of,
  'launch.meta_train': meta_trainer.config_of,
  'launch.sweep': lambda _: sweep.plan(pathlib.Path('missing')),
}


def _name(path: pathlib.Path) -> str:
  return path.stem


@pytest.fixture(scope='module')
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  pytest.importorskip('mkdocs', reason="pip install -e '.[dev]'")
  folder = tmp_path_factory.mktemp('site')
  process = launching.run_python(
    *('-m', 'mkdocs', 'build', '--strict', f'-d{folder}')
  )
  assert process.returncode == 0, process.stderr
  return folder


def _load(path: str) -> ModuleType:
  """Imports a file of docs/, which is no package."""
  pytest.importorskip('mkdocs', reason="pip install -e '.[dev]'")
  name = 'docs_' + pathlib.PurePath(path).stem
  spec = importlib.util.spec_from_file_location(name, _ROOT / 'docs' / path)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _filled(name: str) -> str:
  """Returns the text that docs/generate.py writes for a part of a page."""
  mark = f'<!-- made by docs/generate.py: {name} -->\n'
  return _load('generate.py').fill(f'{mark}<!-- end -->').removeprefix(mark)


def test_pages_need_no_network(site: pathlib.Path) -> None:
  pages = list(site.rglob('*.html'))
  assert len(pages) > len(_PAGES)
  for page in pages:
    remote = re.findall(
      r'<(?:script|img|iframe|link)[^>]+(?:src|href)="?(?:https?:)?//[^>]*',
      page.read_text(),
    )
    assert not remote, page


def test_search_from_the_disk_finds_guides(site: pathlib.Path) -> None:
  script = (site / 'search' / 'search_index.js').read_text()
  index = json.loads(script.removeprefix('var __index = '))
  pages = {entry['location'].partition('#')[0] for entry in index['docs']}
  assert {'get-started.html', 'reference.html', 'your-loop.html'} < pages
  assert not any('/' in page for page in pages)
  # A substitute for the search worker serves pages that are opened as files.
  assert 'javascripts/iframe-worker.js' in (site / 'index.html').read_text()


# What people type -> the guide that answers.
_FOUND = {
  'GPU': 'get-started.html#install',
  'GPU out of memory': 'troubleshooting.html#out-of-memory',
  'MinAtar': 'train.html#minatar',
  'PPO': 'evaluate.html#compared-with-ppo',
  'PPO baseline': 'baselines.html',
  'cartpole': 'which-rule.html#cartpole',
  'checkpoint': 'faults.html#checkpoints',
  'checkpoint resume': 'faults.html#checkpoints',
  'cite': 'index.html',
  'colab': 'get-started.html#install',
  'continuous actions': 'environments.html#continuous-actions-and-other-limits',
  'how many seeds': 'train.html#multiple-seeds-and-how-many',
  'install': 'get-started.html#install',
  'learning rate': 'train.html#learning-rates',
  'learning rate too high': 'train.html#learning-rates',
  'minigrid': 'environments.html#minigrid',
  'multiple seeds python': 'train.html#multiple-seeds-and-how-many',
  'own environment': 'your-environment.html',
  'own loop': 'your-loop.html',
  'pytorch': 'troubleshooting.html#installation',
  'resume': 'faults.html',
  'reward scale': 'your-environment.html#observations-and-rewards-of-any-scale',
  'save video': 'watch.html#save-a-video',
  'share': 'rules.html#share-a-rule',
  'total timesteps': 'train.html#from-python',
  'wandb': 'evaluate.html#loggers',
}


def test_search_finds_the_right_guide_first(site: pathlib.Path) -> None:
  node = shutil.which('node')
  if node is None:
    pytest.skip('Node.js is not installed')
  script = pathlib.Path(__file__).with_name('search.js')
  found = subprocess.run(
    [node, str(script), str(site), *_FOUND],
    capture_output=True,
    text=True,
    check=True,
  )
  assert json.loads(found.stdout) == _FOUND


def test_notebooks_show_their_outputs(site: pathlib.Path) -> None:
  page = (site / 'source/colabs/explore_rule.ipynb.html').read_text()
  assert page.count('src="data:image/png;base64,') >= 3


def test_equations_are_mathml(site: pathlib.Path) -> None:
  page = (site / 'how-it-works.html').read_text()
  text = (_ROOT / 'docs' / 'how-it-works.md').read_text()
  assert 'arithmatex' not in page
  assert page.count('display="block"') == text.count('$$') // 2 > 5


def test_links_into_the_repository_lead_to_lines(site: pathlib.Path) -> None:
  page = (site / 'how-it-works.html').read_text()
  line = re.search(
    r'href="(source/[\w/]+/value_targets\.py\.html)#(__codelineno-0-\d+)"', page
  )
  assert line is not None
  source = (site / line[1]).read_text()
  assert f'id="{line[2]}"' in source
  after = re.sub('<[^>]+>', '', source.split(f'id="{line[2]}"')[1][:800])
  assert 'def retrace' in after


def test_pages_have_what_the_code_says() -> None:
  # In its own process: other tests register rules.
  ended = launching.run_python('docs/generate.py', '--check')
  assert ended.returncode == 0, ended.stdout + ended.stderr


def test_parts_that_differ_are_written_again() -> None:
  text = (_ROOT / 'docs' / 'your-rule.md').read_text()
  other = text.replace('class LambdaActorCritic', 'class Other')
  assert other != text
  assert _load('generate.py').fill(other) == text


@pytest.mark.parametrize('path', _TEXTS, ids=_name)
def test_pages_are_plain_markdown(path: pathlib.Path) -> None:
  """They are read as files, too, where the site's syntax means nothing."""
  text = re.sub('```.*?```', '', path.read_text(), flags=re.DOTALL)
  for syntax in (
    r'\)\{ *width',
    '8<--',
    '^:::',
    r'^\?\?\?',
    '^!!!',
    '<div',
    '^=== ',
  ):
    assert not re.search(syntax, text, re.MULTILINE), syntax


def test_the_reference_has_all_public_names() -> None:
  page = (_ROOT / 'docs' / 'reference.md').read_text()
  titles = re.findall('^## (.+)$', page, re.MULTILINE)
  assert sorted(titles) == sorted(disco_rl.__all__)
  # A method of the class, one that it inherits, and the words of a docstring.
  for text in (
    '### Trainer.train\n',
    '### Trainer.evaluate\n',
    'The number of discrete actions A.',
    'Raises:\n\n- `',
  ):
    assert text in page


def test_the_cards_of_rules_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
  returns = {'mean': 0.5, 'min': -1.0, 'max': 1.0}
  card = cards.Card(
    name='mine',
    description='Made here.',
    environments=('catch/4x3', 'catch/5x5'),
    agents=8,
    environment_steps=12345,
    settings={'torso': 'a|b'},
    compute={'seconds': 130.0, 'devices': 2, 'kind': 'cpu'},
    held_out={'updates': 9, 'agents': 3, 'returns': {'catch/6x5': returns}},
  )
  plain = cards.Card(name='plain', description='Nothing more.')
  monkeypatch.setattr(
    disco_rl, 'rules', lambda: {'mine': card, 'plain': plain}, raising=False
  )
  shown = _filled('rules')
  assert '### plain\n\nNothing more.\n' in shown
  for line in (
    '### mine',
    'Made here.',
    '| environments | `catch/4x3`, `catch/5x5` |',
    '| agents | 8 |',
    '| environment steps | 12,345 |',
    '| compute | 2 min on 2 x cpu |',
    '| `catch/6x5` | 0.5 | -1 to 1 |',
    '[All settings of the discovery]'
    '(../disco_rl/update_rules/shipped/mine.json).',
  ):
    assert line in shown.splitlines()
  assert 'seed' not in shown and 'torso' not in shown
  # Where a rule goes, its card has them all.
  assert "| `torso` | `'a\\|b'` |" in cards.as_markdown(card).splitlines()


def _table(
  tmp_path: pathlib.Path, lines: list[str], name: str, *arguments: str
) -> list[str]:
  """The lines of the table of a file of docs/data."""
  files = {'differences': 'protocol', 'choices': 'protocol_validation'}
  file = files.get(name, name)
  (tmp_path / 'docs/data').mkdir(parents=True, exist_ok=True)
  (tmp_path / f'docs/data/{file}.csv').write_text('\n'.join(lines))
  module = _load('generate.py')
  module._ROOT = tmp_path
  (table,) = module._PARTS[name](*arguments)
  return table.splitlines()


def test_terms_of_rules_are_tabulated(tmp_path: pathlib.Path) -> None:
  """Means over agents of what is explained, medians of coefficients."""
  columns = 'all terms, explained', 'a, coefficient'
  names = ['rule', 'environment_steps', 'seed', *columns]
  header = ','.join(
    f'"{x}"' for x in [*names, 'policy gradient, explained alone']
  )
  # Two agents at the ages 10, 20, 30 and 40.
  rows = [
    f'mine,{10 * age},{seed},{0.1 * age},{age + 10 * seed},{0.1 * age + seed}'
    for seed in (0, 1)
    for age in (1, 2, 3, 4)
  ]
  titles, _, row = _table(tmp_path, [header, *rows], 'terms')
  assert 'alone, after 10 steps | after 20 steps | after 40 steps |' in titles
  assert row == '| `mine` | 0.60 | 0.70 | 0.90 | 0.25 | 7.50 |'


def test_responses_of_targets_are_tabulated(tmp_path: pathlib.Path) -> None:
  """Means over two agents; a rule without y has no row for it."""
  rows = [
    f'{rule},{seed},{change},{d},{0.01 * d + seed},{x},{x},'
    for rule, x in (('mine', 0.5), ('bare', ''))
    for seed in (0, 1)
    for change in ('reward', 'another action', 'end of the episode')
    for d in range(-1, 18)
  ]
  header = 'rule,seed,change,distance,policy,y,policy gradient,z'
  titles, _, *found = _table(tmp_path, [header, *rows], 'responses')
  columns = [x.strip() for x in titles.strip('|').split('|')]
  assert columns[2:6] == [f'reward, {d}' for d in (0, 4, 8, 16)]
  assert columns[6:] == [
    *('another action, 0', 'another action, 4'),
    *('end of the episode, 0', 'end of the episode, 8'),
  ]
  means = ' | 0.5 | 0.54 | 0.58 | 0.66 | 0.5 | 0.54 | 0.5 | 0.58 |'
  assert found == [
    f'| `mine` | policy{means}',
    f'| `mine` | policy gradient{" | 0.5" * 8} |',
    f'| `mine` | y{" | 0.5" * 8} |',
    f'| `bare` | policy{means}',
  ]


def test_what_the_meta_rnn_holds_is_tabulated(tmp_path: pathlib.Path) -> None:
  """Means, and differences by agent with intervals of Student's t."""
  header = 'rule,seed,quantity,from,r_squared'
  rows = [
    f'mine,{seed},{quantity},{source},{score}'
    for quantity, sources in {
      'age': {'state': (0.5, 0.7), 'untrained state': (0.4, 0.6)},
      'return': {
        'state': (1.0, 1.0),
        'untrained state': (0.5, 0.7),
        'age alone': (0.0, 0.2),
      },
    }.items()
    for source, scores in sources.items()
    for seed, score in enumerate(scores)
  ]
  titles, _, *found = _table(tmp_path, [header, *rows], 'meta_rnn_state')
  assert titles == (
    '| rule | quantity | state | untrained state | age alone '
    '| state less untrained |'
  )
  # Differences are 0.1 twice; 0.5 and 0.3, 12.7062 standard errors of 0.1.
  assert found == [
    '| `mine` | age | 0.60 | 0.50 |  | +0.10 [+0.10, +0.10] |',
    '| `mine` | return | 1.00 | 0.60 | 0.10 | +0.40 [-0.87, +1.67] |',
  ]


def test_effects_of_the_meta_rnn_are_tabulated(tmp_path: pathlib.Path) -> None:
  """Medians over three agents with the least and the largest."""
  header = 'rule,seed,environment_steps,replacement,policy,y,z'
  rows = [
    f'{rule},{seed},{age},{name},{0.01 * age * 2**seed},{y},{y}'
    for rule, y in (('mine', 0.5), ('bare', ''))
    for name in ('initial state', 'of another agent')
    for seed in range(3)
    for age in (10, 20, 30, 40)
  ]
  titles, _, *found = _table(tmp_path, [header, *rows], 'meta_rnn_effect')
  assert titles == (
    '| rule | target | initial state, after 20 steps | initial state, after 40 '
    'steps | of another agent, after 20 steps | of another agent, after 40 '
    'steps |'
  )
  policy = '0.4 [0.2, 0.8] | 0.8 [0.4, 1.6] | 0.4 [0.2, 0.8] | 0.8 [0.4, 1.6] |'
  same = ' | '.join(['0.5 [0.5, 0.5]'] * 4)
  assert found == [
    f'| `mine` | policy | {policy}',
    f'| `mine` | y | {same} |',
    f'| `mine` | z | {same} |',
    f'| `bare` | policy | {policy}',
  ]


def test_exact_values_are_tabulated(tmp_path: pathlib.Path) -> None:
  header = 'rule,seed,prediction,r_squared'
  rows = ['mine,0,q,0.5', 'mine,0,y,0.1', 'mine,1,q,1', 'mine,1,y,-0.3']
  assert _table(tmp_path, [header, *rows, 'bare,0,q,1'], 'values') == [
    '| rule | q | y |',
    '|---|---|---|',
    '| `mine` | 0.75 | -0.10 |',
    '| `bare` | 1.00 |  |',
  ]


def test_scores_of_the_protocol_are_tabulated(tmp_path: pathlib.Path) -> None:
  """IQMs and paired differences by budget, in the families that are named."""
  # Rule -> scores of four agents in each of four levels.
  of_rule = {'ppo': (0, 1, 2, 9), 'mine': (3, 4, 5, 6), 'uniform': (1,) * 4}
  rows = [
    f'{task},{rule},{updates},{steps},{agent},0,{score + updates}'
    for task in ('a/0', 'a/1', 'a/2', 'b/0')
    for rule, scores in of_rule.items()
    for updates, steps in ((2, 40), (5, 100 if task[0] == 'a' else 3000))
    for agent, score in enumerate(scores)
  ]
  header = 'task,rule,updates,environment_steps,agent,return,score'
  lines = [header, *rows, 'c/0,mine,7,90,0,0,99', 'b/1,mine,5,90,0,1,nan']
  titles, _, *shown = _table(tmp_path, lines, 'protocol', 'a', 'b')
  assert titles == '| rule | after 40 steps | after 100 to 3,000 steps |'
  # The mean of the middle two of four agents.
  assert _starts(shown) == [
    ['`mine`', '6.50', '9.50'],
    ['`ppo`', '3.50', '6.50'],
    ['`uniform`', '3.00', '6.00'],
  ]
  assert shown[-1] == '| `uniform` | 3.00 [3.00, 3.00] | 6.00 [6.00, 6.00] |'
  titles, _, *shown = _table(tmp_path, lines, 'differences', 'mine', 'a', 'b')
  assert titles.startswith('| `mine` minus | after 40 steps |')
  # Of the means of all agents.
  assert _starts(shown) == [['`ppo`', '+1.50', '+1.50']]


def test_settings_that_validation_chose_are_tabulated(
  tmp_path: pathlib.Path,
) -> None:
  """Validation scores returns in Catch from -1 to 1."""
  rows = [
    f'catch/5x5,{rule},"{settings}",{agent},{value}'
    for rule, settings, values in (
      ('mine', 'a=1, b=2', (-1, 0.2, 0.2, 1)),
      ('mine', 'a=1, b=3', (-0.6, -0.6, 1, 1)),
      ('bare', 'a=1', (-0.6, -0.6, -0.6, -0.6)),
    )
    for agent, value in enumerate(values)
  ]
  header = 'task,rule,settings,agent,return'
  assert _table(tmp_path, [header, *rows], 'choices')[2:] == [
    '| `mine` | a=1, b=2 | 0.60 |',
    '| `bare` | a=1 | 0.20 |',
  ]


def _starts(rows: list[str]) -> list[list[str]]:
  """The cells of rows without their intervals."""
  return [[x.split()[0] for x in row.split('|')[1:-1]] for row in rows]


@pytest.mark.parametrize(
  ('link', 'culprit'),
  [
    ('[x](../disco_rl/no_such_file.py)', 'no_such_file'),
    ('[x](../disco_rl/types.py#NoSuchClass)', 'NoSuchClass'),
  ],
)
def test_broken_links_into_the_repository_are_errors(
  link: str, culprit: str
) -> None:
  hook = _load('hooks/source_links.py')
  page: Any = type('Page', (), {})()
  page.file = page
  page.src_uri = 'a_page.md'
  with pytest.raises(Exception, match=f'a_page.md links to .*{culprit}'):
    hook.on_page_markdown(link, page=page)


@pytest.mark.parametrize('name', ['meta_training', 'evaluate'])
def test_every_setting_has_its_meaning_in_the_tables(name: str) -> None:
  sections = importlib.import_module(f'configs.{name}').sections()
  table = _filled(f'settings {name}')
  for setting in (x for own in sections.values() for x in own):
    row = f'| `{setting.name}` | `{setting.default!r}` | '
    assert setting.name == 'preprocessing' or row in table, setting.name


def test_links_of_the_readme(site: pathlib.Path) -> None:
  links = re.findall(
    r'\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)', _README.read_text()
  )
  assert len(links) > 20
  for path, fragment in links:
    assert (_ROOT / path).exists(), path
    if fragment:
      page = site / pathlib.Path(path).with_suffix('.html').name
      assert f'id="{fragment}"' in page.read_text(), (path, fragment)


def _blocks(path: pathlib.Path, language: str) -> list[str]:
  """Returns the fenced blocks in a language that a page itself has."""
  # Programs of examples/ are run by examples_test.py.
  own = re.sub(
    r'<!-- made by .*?<!-- end -->', '', path.read_text(), flags=re.DOTALL
  )
  fences = re.findall(r'^```(\w*)\n(.*?)^```$', own, re.DOTALL | re.MULTILINE)
  return [block for name, block in fences if name == language]


def test_the_readme_is_short() -> None:
  first = _blocks(_README, 'python')[0]
  # The first program downloads nothing, and shows what it has learned.
  assert "rule='general'" in first
  assert 'print(' in first
  # `make run` installs no suite of environments.
  assert 'gymnasium' not in ''.join(_blocks(_README, 'python'))
  assert len([line for line in first.splitlines() if line]) <= 16
  assert len(_README.read_text().splitlines()) <= 180


@pytest.mark.parametrize('path', _TEXTS, ids=_name)
def test_the_code_runs(
  path: pathlib.Path,
  disco103_path: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv(sources.DIRECTORY_VARIABLE, str(disco103_path.parent))
  monkeypatch.chdir(tmp_path)
  known = [] if path == _README else _blocks(_README, 'python')
  names: dict = {}
  for block in _blocks(path, 'python'):
    if block not in known:
      if 'import linen' in block:
        pytest.importorskip('flax', reason="pip install -e '.[craftax]'")
      shorter = re.sub(r'updates=\d+', 'updates=2', block)
      shorter = re.sub(r'(\bsteps|every)=[\d_]+', r'\1=2', shorter)
      exec(compile(shorter, path.name, 'exec'), names)
  if path == _README:
    assert np.isfinite(names['metrics']['loss']).all()
    assert [path.name for path in tmp_path.iterdir()] == ['agent.npz']


def test_extras_are_installed_by_one_command() -> None:
  texts = [*_TEXTS, *(_ROOT / 'configs').glob('*.py')]
  found = [
    (path.name, command)
    for path in texts
    for command in re.findall(r'pip install [^`\n]+', path.read_text())
    if '[' in command and 'jax[' not in command
  ]
  assert len(found) > 10
  known = metadata.metadata(extras.DISTRIBUTION).get_all('Provides-Extra')
  for name, command in found:
    names = command.partition('[')[2].partition(']')[0]
    assert command == extras.install(names), name
    assert {*names.split(',')} <= {*known}, name


def _commands() -> Iterator[tuple[pathlib.Path, list[str]]]:
  """Yields the commands `python -m` and `disco-rl` of all pages."""
  for path in _TEXTS:
    for block in _blocks(path, ''):
      for line in block.replace('\\\n', ' ').splitlines():
        # The shell computes some words; where flags need numbers, 1 will do.
        words = shlex.split(
          re.sub(r'\$\(.*?\)|\$\w+', '1', line), comments=True
        )
        if words[:2] == ['python', '-m']:
          yield path, words[2:]
        elif words[:1] == ['disco-rl']:
          name = command_lib.ALIASES.get(words[1], words[1]).replace('-', '_')
          yield path, [f'launch.{name}', *words[2:]]


def test_runs_of_the_pages_have_folders_of_their_own() -> None:
  runs: dict[str, set[str]] = {}
  for path, (module, *flags) in _commands():
    if module in _LAUNCHERS:
      workdir = next(flag for flag in flags if flag.startswith('--workdir='))
      # These flags may change when a run is resumed.
      same = {workdir, *(x for x in flags if x.startswith('--processes='))}
      settings = ' '.join([module, *sorted({*flags} - same)])
      known = runs.setdefault(workdir, {settings})
      assert known == {settings}, f'{path.name}: {workdir}'


def test_commands_of_the_pages_are_valid(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.chdir(_ROOT)
  load = registry.load_with_card
  # The shipped rule replaces files that readers would have or download.
  monkeypatch.setattr(
    registry,
    'load_with_card',
    lambda name, **settings: load(
      name if name in ('actor_critic', 'policy_gradient') else 'general',
      **settings,
    ),
  )
  monkeypatch.setattr(workdirs, 'digests_of', lambda _: {})
  monkeypatch.setattr(sources, 'check_exists', lambda _: None)
  monkeypatch.setattr(workdirs, 'IMPORTED', [])
  commands = list(_commands())
  assert len(commands) > 25
  for path, (module, *flags) in commands:
    where = f'{path.name}: {module} {" ".join(flags)}'
    assert (_ROOT / f'{module.replace(".", "/")}.py').is_file() or (
      module == 'pip'
    ), where
    if module in _LAUNCHERS:
      importlib.import_module(module)  # Defines its flags.
      assert any(flag.startswith('--workdir=') for flag in flags), where
      # Builds the run's settings, as the launcher does first.
      base = evaluate if module == 'launch.train' else None
      # A few runs of a sweep are enough.
      flags += ['--sample=3'] if module == 'launch.sweep' else []
      with launching.parsed(*flags, base=base) as settings:
        common.import_modules()
        assert _LAUNCHERS[module](settings), where
