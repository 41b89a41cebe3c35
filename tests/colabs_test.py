"""Runs the notebooks of colabs/ from top to bottom, as readers do."""

import ast
import importlib
from importlib import metadata
import itertools
import json
import pathlib
import re
from typing import Any

import launching
import pytest

import disco_rl

FOLDER = launching.REPOSITORY / 'colabs'
# Notebook -> figures that it shows.
FIGURES = {'evaluate': 2, 'meta_train': 2, 'explore_rule': 7}
# Notebook -> parts that take long, and their replacements in the test.
SHORTER = {
  'evaluate': [('UPDATES = 400', 'UPDATES = 20')],
  'meta_train': [
    ('config.meta_steps=300', 'config.meta_steps=3'),
    ('UPDATES = 400', 'UPDATES = 20'),
  ],
  'explore_rule': [
    ('config.updates=400', 'config.updates=10'),
    ('curve_updates=400', 'curve_updates=10'),
  ],
}
# Logic belongs in the library, where it is tested.
LOGIC = (
  ast.FunctionDef,
  ast.AsyncFunctionDef,
  ast.ClassDef,
  ast.If,
  ast.While,
  ast.Try,
)


def code_cells(path: pathlib.Path) -> list[dict[str, Any]]:
  cells = json.loads(path.read_text())['cells']
  return [cell for cell in cells if cell['cell_type'] == 'code']


def is_for_colab(cell: dict[str, Any]) -> bool:
  return cell['id'].startswith('colab-')


def outputs_of(path: pathlib.Path) -> list[dict[str, Any]]:
  return [output for cell in code_cells(path) for output in cell['outputs']]


def test_every_notebook_is_listed() -> None:
  assert {path.stem for path in FOLDER.glob('*.ipynb')} == set(FIGURES)


@pytest.mark.parametrize('name', FIGURES)
def test_a_notebook_has_no_logic(name: str) -> None:
  cells = code_cells(FOLDER / f'{name}.ipynb')
  for cell in itertools.filterfalse(is_for_colab, cells):
    lines = ''.join(cell['source']).splitlines()
    if lines[0] == '%%bash':
      assert all(line.startswith(('disco-rl ', '  ')) for line in lines[1:])
      continue
    code = '\n'.join(line for line in lines if not line.startswith('%'))
    nodes = ast.walk(ast.parse(code))
    logic = [node for node in nodes if isinstance(node, LOGIC)]
    assert not logic, ast.unparse(logic[0])


@pytest.mark.parametrize('name', FIGURES)
def test_a_notebook_shows_what_it_gave(name: str) -> None:
  path = FOLDER / f'{name}.ipynb'
  cells = code_cells(path)
  # All cells were run, from top to bottom.
  assert [cell['execution_count'] for cell in cells] == [
    *range(1, len(cells) + 1)
  ]
  outputs = outputs_of(path)
  assert count_figures(outputs) == FIGURES[name]
  assert {output.get('name', 'stdout') for output in outputs} == {'stdout'}
  # Outputs show no path of the machine.
  assert not re.search(r'/(home|root|tmp|usr|work)/', json.dumps(outputs))


def test_notebooks_use_public_names() -> None:
  for name in FIGURES:
    cells = code_cells(FOLDER / f'{name}.ipynb')
    text = '\n'.join(''.join(cell['source']) for cell in cells)
    assert {*re.findall(r'\bdisco_rl\.(\w+)', text)} <= {*disco_rl.__all__}
    assert not re.search(r'from disco_rl|sys\.path|configs\b', text)


def run(
  name: str, tmp_path: pathlib.Path, **variables: str
) -> list[dict[str, Any]]:
  """Executes a notebook; returns the outputs of its cells."""
  pytest.importorskip('nbclient', reason="pip install -e '.[notebooks]'")
  # In a separate process, whose variables kernels inherit.
  process = launching.run_python(
    str(FOLDER / 'execute.py'),
    str(FOLDER / f'{name}.ipynb'),
    f'--output={tmp_path}',
    *itertools.chain(*(('--replace', *pair) for pair in SHORTER[name])),
    # Seconds, most of them for compilation; machines may be busy.
    timeout=900,
    **variables,
  )
  assert process.returncode == 0, process.stderr
  return outputs_of(tmp_path / f'{name}.ipynb')


def count_figures(outputs: list[dict[str, Any]]) -> int:
  return sum('image/' in ' '.join(output.get('data', {})) for output in outputs)


@pytest.mark.parametrize('name', FIGURES)
def test_a_notebook_opens_and_installs_in_colab(name: str) -> None:
  nbformat = pytest.importorskip(
    'nbformat', reason="pip install -e '.[notebooks]'"
  )
  execute = importlib.import_module('colabs.execute')
  notebook = nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)
  cells = list(notebook.cells)
  badge, install = cells[:2]
  address = execute.repository()
  assert f'github/{address}/blob/main/colabs/{name}.ipynb' in badge.source
  assert f'https://github.com/{address}' in install.source
  # The project moves to another address.
  execute.open_in_colab(notebook, 'someone/new', f'{name}.ipynb')
  badge, install = notebook.cells[:2]
  assert 'github/someone/new/blob/main/' in badge.source
  assert 'https://github.com/someone/new' in install.source
  assert notebook.cells[2:] == cells[2:]
  nbformat.validate(notebook)


def test_the_gpu_of_colab_gets_a_plugin_of_the_version_of_jax() -> None:
  execute = importlib.import_module('colabs.execute')
  assert "'jax[cuda12]' if" in execute.INSTALL
  version = metadata.version('jax')
  for package in ('jaxlib', 'jax-cuda12-plugin'):
    pinned = rf'{package}\b.*<={version},>={version}; extra == "cuda12"'
    assert any(re.match(pinned, x) for x in metadata.requires('jax') or ())


@pytest.mark.slow
@pytest.mark.parametrize('name', FIGURES)
def test_a_notebook_runs(
  name: str, disco103_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  outputs = run(name, tmp_path, DISCO_RL_WEIGHTS_DIR=str(disco103_path.parent))
  assert count_figures(outputs) == FIGURES[name]
