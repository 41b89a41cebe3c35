"""Runs notebooks from top to bottom, and keeps their outputs in them.

  python colabs/execute.py colabs/*.ipynb

Figures and results are kept; progress bars and warnings are not. Afterwards the
notebooks hold what readers see before they run anything. They begin with a
badge that opens them in Colab, and with a cell that installs the package there.
"""

import argparse
from collections.abc import Iterable
import os
import pathlib
import sys
import tempfile
import tomllib

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
BADGE = """\
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/main/colabs/{file})"""
# Both come with an older JAX, and Colab's GPUs need a plugin of JAX's own
# version: `jax[cuda12]` asks for jax, jaxlib and the plugin of one version.
INSTALL = """\
# On Colab and Kaggle: installs the package, with JAX for their GPU.
# Elsewhere: pip install 'disco-rl-discovery[notebooks]'.
import os
import sys

if 'google.colab' in sys.modules or 'KAGGLE_KERNEL_RUN_TYPE' in os.environ:
  jax = 'jax[cuda12]' if os.path.exists('/dev/nvidia0') else 'jax'
  url = 'git+https://github.com/{repository}'
  %pip install --quiet '{{jax}}' 'disco-rl-discovery @ {{url}}'"""


def main() -> None:
  """Runs the notebooks that the command line names."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('notebooks', nargs='+', type=pathlib.Path)
  parser.add_argument(
    '--output', type=pathlib.Path, help='Folder of the results; or in place.'
  )
  parser.add_argument(
    '--from_folder',
    help='Where the kernel starts; by default in a temporary folder.',
  )
  parser.add_argument(
    '--replace',
    nargs=2,
    action='append',
    default=[],
    metavar=('OLD', 'NEW'),
    help='A change before the run, such as of the number of updates.',
  )
  flags = parser.parse_args()
  # Cells find the command disco-rl of this environment.
  folders = (os.path.dirname(sys.executable), os.environ.get('PATH', ''))
  os.environ['PATH'] = os.pathsep.join(folders)
  for path in flags.notebooks:
    text = path.read_text(encoding='utf-8')
    for old, new in flags.replace:
      if text.count(old) != 1:
        parser.error(f'{path} has {text.count(old)} of {old!r}, expected one.')
      text = text.replace(old, new)
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    open_in_colab(notebook, repository(), path.name)
    with tempfile.TemporaryDirectory() as folder:
      execute(notebook, flags.from_folder or folder)
    nbformat.write(notebook, (flags.output or path.parent) / path.name)


def repository() -> str:
  """Returns OWNER/NAME on GitHub, from the one place of the address."""
  text = (FOLDER.parent / 'pyproject.toml').read_text(encoding='utf-8')
  address = tomllib.loads(text)['project']['urls']['Repository']
  return address.removeprefix('https://github.com/')


def open_in_colab(
  notebook: nbformat.NotebookNode, repository: str, file: str
) -> None:
  """Begins a notebook with a badge and a cell that installs the project."""
  new = (
    (nbformat.v4.new_markdown_cell, BADGE),
    (nbformat.v4.new_code_cell, INSTALL),
  )
  cells = [
    make(text.format(repository=repository, file=file), id=f'colab-{i}')
    for i, (make, text) in enumerate(new)
  ]
  # Those of an earlier run go.
  ids = {cell.id for cell in cells}
  notebook.cells = cells + [x for x in notebook.cells if x.id not in ids]


def execute(notebook: nbformat.NotebookNode, folder: str) -> None:
  """Runs a notebook in a folder, and drops what says nothing later."""
  resources = {'metadata': {'path': folder}}
  nbclient.NotebookClient(notebook, timeout=None, resources=resources).execute()
  for cell in notebook.cells:
    # Times of the run and of its messages.
    cell.metadata.pop('execution', None)
    if cell.cell_type == 'code':
      cell.outputs = _joined(
        output for output in cell.outputs if output.get('name') != 'stderr'
      )


def _joined(
  outputs: Iterable[nbformat.NotebookNode],
) -> list[nbformat.NotebookNode]:
  """Joins what a cell printed, which arrives in parts that time decides."""
  joined: list[nbformat.NotebookNode] = []
  for output in outputs:
    if joined and output.get('name', '') == joined[-1].get('name') == 'stdout':
      joined[-1].text += output.text
    else:
      joined.append(output)
  return joined


if __name__ == '__main__':
  main()
