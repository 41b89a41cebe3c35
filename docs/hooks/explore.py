"""The page for trying the shipped rules interactively, explore.html."""

import pathlib
import tempfile

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure import files

from disco_rl.analysis import explorer
from disco_rl.update_rules import registry

_RULES = ('general', 'from_nothing', 'imitation')


def on_files(collected: files.Files, config: MkDocsConfig) -> files.Files:
  """Adds the page to the site."""
  rules = {name: registry.load(name) for name in _RULES}
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, 'explore.html')
    explorer.write(
      path,
      rules,
      'The weights are in this page: it works without a network.',
      home='index.html',
    )
    page = path.read_text(encoding='utf-8')
  collected.append(files.File.generated(config, 'explore.html', content=page))
  return collected
