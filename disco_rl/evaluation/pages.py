"""Reports and pages from the templates of this package."""

import base64
from collections.abc import Mapping
import pathlib
from typing import Any

import jinja2

from disco_rl.runtime import files


def write(
  path: files.PathLike, template: str, content: Mapping[str, Any]
) -> None:
  """Writes a page, atomically.

  Args:
    path: of the file; that of HTML ends in '.html'.
    template: file in templates/.
    content: by the names that the template has for it.
  """
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('disco_rl.evaluation'),
    autoescape=template.endswith('.html'),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  with files.replacing(path) as temporary:
    text = environment.get_template(template).render(content)
    temporary.write_text(text, encoding='utf-8')


def png(path: pathlib.Path) -> dict[str, Any]:
  """A figure of `plotting.save` as templates take it: data and width."""
  content = path.read_bytes()
  return {
    'data': base64.b64encode(content).decode(),
    # In CSS pixels: figures have 200 dots per inch, pages 96. The width of a
    # PNG image is the four bytes from the 16th on.
    'width': int.from_bytes(content[16:20], 'big') // 2,
  }
