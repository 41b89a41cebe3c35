"""Texts of strangers in Markdown, CSV files and terminals."""

import pytest

from disco_rl.runtime import escaping


@pytest.mark.parametrize(
  ('text', 'shown'),
  [
    ('random_grid/of_16: 0.5 [0.1, 0.9]', 'random_grid/of_16: 0.5 [0.1, 0.9]'),
    ('<script>x</script>', '&lt;script&gt;x&lt;/script&gt;'),
    ('a\n\n# b\n| c |', r'a # b \| c \|'),
    ('![x](http://y)', r'![x\](http://y)'),
    ('[x][y]', r'[x\][y]'),
    ('[x]: http://y', r'[x\]: http://y'),
    ('`x` **y** ~~z~~ \\', r'\`x\` \*\*y\*\* \~\~z\~\~ \\'),
  ],
)
def test_markdown(text: str, shown: str) -> None:
  assert escaping.markdown(text) == shown


@pytest.mark.parametrize(
  ('text', 'shown'),
  [
    ('# x', r'\# x'),
    ('1. x', r'1\. x'),
    ('- x', r'\- x'),
    ('===', r'\==='),
    ('0 is random play. 1 is best.', '0 is random play. 1 is best.'),
  ],
)
def test_paragraphs_of_markdown(text: str, shown: str) -> None:
  assert escaping.paragraph(text) == shown


def test_code_in_markdown() -> None:
  assert escaping.code('a`b|c\nd') == r"`a'b\|c d`"
  assert escaping.code(' ') == ''


@pytest.mark.parametrize('first', ['=', '+', '-', '@', '\t', '\r'])
def test_cells_are_no_formulas(first: str) -> None:
  assert escaping.cell(f'{first}cmd|x') == f"'{first}cmd|x"


def test_other_cells_stay_as_they_are() -> None:
  for value in ('catch/4x4', -1.5, 3, ''):
    assert escaping.cell(value) is value


def test_terminals_are_not_controlled() -> None:
  text = '\x1b]0;title\x07 caf\xe9\nnext\u202e'
  assert escaping.printable(text) == '\ufffd]0;title\ufffd caf\xe9 next\ufffd'
