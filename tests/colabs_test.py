"""Runs the notebooks of colabs/ from top to bottom, as readers do."""

import ast
import json
import pathlib
from typing import Any

import launching
import pytest

FOLDER = launching.REPOSITORY / 'colabs'
# Notebook -> figures that it shows.
FIGURES = {'evaluate': 1, 'meta_train': 1, 'explore_rule': 4}
# Notebook -> what makes it run for long, and what stands there in the test.
SHORTER = {
  'evaluate': ('config.updates = 120', 'config.updates = 20'),
  'meta_train': ('config.meta_steps = 30', 'config.meta_steps = 3'),
  'explore_rule': ('updates=100', 'updates=10'),
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
# Runs in a process of its own, whose variables kernels inherit.
EXECUTE = """
import sys
import nbclient
import nbformat
source, result, folder, longer, shorter = sys.argv[1:]
text = open(source, encoding='utf-8').read()
assert text.count(longer) == 1, longer
notebook = nbformat.reads(text.replace(longer, shorter), as_version=4)
nbformat.validate(notebook)
resources = {'metadata': {'path': folder}}
nbclient.NotebookClient(notebook, timeout=None, resources=resources).execute()
nbformat.write(notebook, result)
"""


def code_cells(path: pathlib.Path) -> list[dict[str, Any]]:
  cells = json.loads(path.read_text())['cells']
  return [cell for cell in cells if cell['cell_type'] == 'code']


def test_every_notebook_is_listed() -> None:
  assert {path.stem for path in FOLDER.glob('*.ipynb')} == set(FIGURES)


@pytest.mark.parametrize('name', FIGURES)
def test_a_notebook_has_no_logic_and_no_outputs(name: str) -> None:
  for cell in code_cells(FOLDER / f'{name}.ipynb'):
    lines = ''.join(cell['source']).splitlines()
    code = '\n'.join(line for line in lines if not line.startswith('%'))
    nodes = ast.walk(ast.parse(code))
    logic = [node for node in nodes if isinstance(node, LOGIC)]
    assert not logic, ast.unparse(logic[0])
    assert cell['outputs'] == []
    assert cell['execution_count'] is None


def run(
  name: str, folder: pathlib.Path, tmp_path: pathlib.Path, **variables: str
) -> list[dict[str, Any]]:
  """Executes a notebook in a folder; returns the outputs of its cells."""
  pytest.importorskip('nbclient', reason="pip install -e '.[dev]'")
  result = tmp_path / 'result.ipynb'
  process = launching.run_python(
    '-c',
    EXECUTE,
    str(FOLDER / f'{name}.ipynb'),
    str(result),
    str(folder),
    *SHORTER[name],
    # Seconds, most of them for compilation; machines may be busy.
    timeout=900,
    **variables,
  )
  assert process.returncode == 0, process.stderr
  return [output for cell in code_cells(result) for output in cell['outputs']]


def count_figures(outputs: list[dict[str, Any]]) -> int:
  return sum('image/png' in output.get('data', {}) for output in outputs)


def test_discovery_runs(tmp_path: pathlib.Path) -> None:
  outputs = run('meta_train', FOLDER, tmp_path)
  assert count_figures(outputs) == FIGURES['meta_train']


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
