"""Runs notebooks from top to bottom, and keeps their outputs in them.

  python colabs/execute.py colabs/*.ipynb

Figures and results are kept; progress bars and warnings are not. Afterwards the
notebooks hold what readers see before they run anything.
"""

import argparse
import pathlib

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent


def main() -> None:
  """Runs the notebooks that the command line names."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('notebooks', nargs='+', type=pathlib.Path)
  parser.add_argument(
    '--output', type=pathlib.Path, help='Folder of the results; or in place.'
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
    execute(notebook, f'{flags.from_folder}')
    nbformat.write(notebook, (flags.output or path.parent) / path.name)


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
