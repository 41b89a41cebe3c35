"""Runs notebooks from top to bottom, and keeps their outputs in them.

  python colabs/execute.py colabs/*.ipynb

Figures and results are kept; progress bars and warnings are not. Afterwards the
notebooks hold what readers see before they run anything. With
--repository=OWNER/NAME, a public copy of the project on GitHub, they also hold
a badge that opens them in Colab, and a cell that installs the project there.
"""

import argparse
import pathlib

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
BADGE = """\
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/main/colabs/{file})"""
INSTALL = """\
# On Colab: fetches the project, and installs it.
import sys

if 'google.colab' in sys.modules:
  !git clone --quiet --depth=1 https://github.com/{repository} /content/project
  %cd -q /content/project/colabs
  %pip install --quiet .."""


def main() -> None:
  """Runs the notebooks that the command line names."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('notebooks', nargs='+', type=pathlib.Path)
  parser.add_argument(
    '--output', type=pathlib.Path, help='Folder of the results; or in place.'
  )
  parser.add_argument(
    '--repository',
    metavar='OWNER/NAME',
    help='On GitHub, for a badge and a cell that make it run on Colab.',
  )
  parser.add_argument(
    '--from_folder', default=FOLDER, help='Where the kernel starts.'
  )
  parser.add_argument(
    '--replace',
    nargs=2,
    metavar=('OLD', 'NEW'),
    help='A change before the run, such as of the number of updates.',
  )
  flags = parser.parse_args()
  for path in flags.notebooks:
    text = path.read_text(encoding='utf-8')
    if flags.replace:
      old, new = flags.replace
      if text.count(old) != 1:
        parser.error(f'{path} has {text.count(old)} of {old!r}, expected one.')
      text = text.replace(old, new)
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    if flags.repository:
      open_in_colab(notebook, flags.repository, path.name)
    execute(notebook, f'{flags.from_folder}')
    nbformat.write(notebook, (flags.output or path.parent) / path.name)


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
      cell.outputs = [
        output for output in cell.outputs if output.get('name') != 'stderr'
      ]


if __name__ == '__main__':
  main()
