"""Runs the notebooks of colabs/ from top to bottom, as readers do."""

import ast
import importlib
import itertools
import json
import pathlib
import re
from typing import Any

import launching
import pytest

FOLDER = launching.REPOSITORY / 'colabs'
# Notebook -> figures that it shows.
FIGURES = {'evaluate': 1, 'meta_train': 1, 'explore_rule': 7}
# Notebook -> code that takes long, and its replacement in the test.
SHORTER = {
  'evaluate': ('config.updates = 400', 'config.updates = 20'),
  'meta_train': ('config.meta_steps = 30', 'config.meta_steps = 3'),
  'explore_rule': (
    'UPDATES, PROBE_STEPS = 400, 200',
    'UPDATES, PROBE_STEPS = 10, 2',
  ),
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


def run(
  name: str, folder: pathlib.Path, tmp_path: pathlib.Path, **variables: str
) -> list[dict[str, Any]]:
  """Executes a notebook in a folder; returns the outputs of its cells."""
  pytest.importorskip('nbclient', reason="pip install -e '.[notebooks]'")
  # In a separate process, whose variables kernels inherit.
  process = launching.run_python(
    str(FOLDER / 'execute.py'),
    str(FOLDER / f'{name}.ipynb'),
    f'--output={tmp_path}',
    f'--from_folder={folder}',
    *('--replace', *SHORTER[name]),
    # Seconds, most of them for compilation; machines may be busy.
    timeout=900,
    **variables,
  )
  assert process.returncode == 0, process.stderr
  return outputs_of(tmp_path / f'{name}.ipynb')


def count_figures(outputs: list[dict[str, Any]]) -> int:
  return sum('image/png' in output.get('data', {}) for output in outputs)


def test_a_published_notebook_opens_and_installs_in_colab() -> None:
  nbformat = pytest.importorskip(
    'nbformat', reason="pip install -e '.[notebooks]'"
  )
  execute = importlib.import_module('colabs.execute')
  notebook = nbformat.read(FOLDER / 'evaluate.ipynb', as_version=4)
  cells = list(notebook.cells)
  # The project moves to another address.
  for repository in ('someone/old', 'someone/new'):
    execute.open_in_colab(notebook, repository, 'evaluate.ipynb')
  badge, install = notebook.cells[:2]
  assert 'github/someone/new/blob/main/colabs/evaluate.ipynb' in badge.source
  assert 'https://github.com/someone/new ' in install.source
  assert notebook.cells[2:] == cells
  nbformat.validate(notebook)


@pytest.mark.slow
def test_discovery_runs(tmp_path: pathlib.Path) -> None:
  outputs = run('meta_train', FOLDER, tmp_path)
  shown = json.dumps(outputs)  # Includes the names of all columns.
  for what in ('policy', 'y', 'z'):
    assert f'validation_{what}_entropy' in shown
  assert count_figures(outputs) == FIGURES['meta_train']


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'folder'),
  [('evaluate', FOLDER), ('explore_rule', launching.REPOSITORY)],
)
def test_a_notebook_on_disco103_runs(
  name: str,
  folder: pathlib.Path,
  disco103_path: pathlib.Path,
  tmp_path: pathlib.Path,
) -> None:
  outputs = run(
    name, folder, tmp_path, DISCO_RL_WEIGHTS_DIR=str(disco103_path.parent)
  )
  assert count_figures(outputs) == FIGURES[name]
