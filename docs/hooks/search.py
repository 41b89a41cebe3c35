"""Search: guides come before the reference, and internal packages do not come.

Titles count so much that a method `resume` would come before the page on it.
"""

from typing import Any

from mkdocs.structure import pages as mkdocs_pages

# Beginning of the name of a page -> how it is searched; the first one holds.
_SEARCHED = {
  'get-started.md': {'boost': 4.0},
  'troubleshooting.md': {'boost': 2.0},
  'your-': {'boost': 2.0},
  'performance.md': {'boost': 0.5},
  'reference/disco_rl.md': {'boost': 0.1},
  'reference/': {'exclude': True},
}


def on_page_markdown(markdown: str, page: mkdocs_pages.Page, **_: Any) -> str:
  """Weighs a page."""
  for name, how in _SEARCHED.items():
    if page.file.src_uri.startswith(name):
      page.meta.setdefault('search', how)
      break
  return markdown
