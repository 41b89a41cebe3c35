"""Search: ranks guides before the reference and the experiments.

Titles have so much weight that a method `resume` would otherwise rank before
the page on resuming.
"""

from typing import Any

from mkdocs.structure import pages as mkdocs_pages

# Prefix of the name of a page -> its search settings; the first match applies.
_SEARCHED = {
  'get-started.md': {'boost': 4.0},
  'troubleshooting.md': {'boost': 2.0},
  'your-': {'boost': 2.0},
  'performance.md': {'boost': 0.5},
  'reference.md': {'boost': 0.1},
  'experiments.md': {'boost': 0.1},
}


def on_page_markdown(markdown: str, page: mkdocs_pages.Page, **_: Any) -> str:
  """Sets the weight of a page."""
  for name, how in _SEARCHED.items():
    if page.file.src_uri.startswith(name):
      page.meta.setdefault('search', how)
      break
  return markdown
