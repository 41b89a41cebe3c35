"""Finds the files of rules, by name or address.

Published rules are downloaded from their publishers, and checked against the
SHA-256 in this module. Shipped rules are files of the package, each with its
card. Addresses have the form that `hub` describes.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import os
import pathlib
from typing import Annotated
from typing import NamedTuple

import pooch

from disco_rl import config as config_lib
from disco_rl.runtime import files
from disco_rl.update_rules import cards
from disco_rl.update_rules import hub

DIRECTORY_VARIABLE = 'DISCO_RL_WEIGHTS_DIR'
SHIPPED = pathlib.Path(__file__).parent / 'shipped'


def _expand(rule: object) -> object:
  """Converts the name of a rule, or its path without ~, to text."""
  return as_text(rule) if isinstance(rule, (str, os.PathLike)) else rule


# A setting: the name, path or address of a rule.
Name = Annotated[str, config_lib.ConvertedBy(_expand)]


class WeightsError(ValueError):
  """Raised if a file or a tree does not contain the weights of a rule."""


class Published(NamedTuple):
  """A rule of another project.

  Attributes:
    urls: The addresses of the file, the first of which does not change.
    card: The card, with the SHA-256 of the file.
  """

  urls: tuple[str, ...]
  card: cards.Card


# Of 2 December 2025. If it no longer has the file, the branch may.
_COMMIT = '9059a29f7121d60948f25ef165e08e050e9399c8'

PUBLISHED = {
  'disco103': Published(
    tuple(
      f'https://raw.githubusercontent.com/google-deepmind/disco_rl/{revision}/'
      'disco_rl/update_rules/weights/disco_103.npz'
      for revision in (_COMMIT, 'main')
    ),
    cards.Card(
      name='disco103',
      description=(
        'Disco103, the rule that Oh et al. published (Nature 648, 2025), '
        'discovered on 103 environments of Atari, ProcGen and DMLab-30.'
      ),
      environments=('atari57', 'procgen16', 'dmlab30'),
      # The smallest settings that learn Catch 6x5 and 8x8 reliably.
      recommended={
        'learning_rate': 1e-2,
        'reward_scale': 30.0,
        'images': {'learning_rate': 3e-3},
      },
      sha256='dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa',
      # According to the project's page, for "the meta-parameters of Disco103".
      license='Apache-2.0',
    ),
  )
}


def names() -> tuple[str, ...]:
  """Returns the names of the rules with files, published ones first."""
  return (*PUBLISHED, *shipped())


def shipped() -> tuple[str, ...]:
  """Returns the names of the rules that ship with the package."""
  return tuple(sorted(path.stem for path in SHIPPED.glob('*.npz')))


def card(name: str) -> cards.Card:
  """Returns the card of one of `names`; raises the errors of `cards.read`."""
  if name in PUBLISHED:
    return PUBLISHED[name].card
  return cards.read(cards.path_of(SHIPPED / f'{name}.npz'))


def find_card(text: str) -> cards.Card | None:
  """Finds the card of a rule by name, path or address; None without one.

  Raises:
    CardError: The card is damaged.
  """
  if text in PUBLISHED:
    return PUBLISHED[text].card
  path = cards.path_of(find(text))
  return cards.read(path) if path.exists() else None


def find(text: str) -> str:
  """Finds the file of a rule.

  A published rule is read from the directory in DISCO_RL_WEIGHTS_DIR or, if
  that is not set, from the user's cache, into which it is downloaded if needed.
  The SHA-256 of published rules, shipped rules and rules from the Hugging Face
  Hub is always checked.

  Args:
    text: One of `names`, a path, which is returned unchanged, or an address on
      the Hugging Face Hub, see `hub`.

  Returns:
    The path.

  Raises:
    FileNotFoundError: DISCO_RL_WEIGHTS_DIR is set, but lacks the rule.
    OSError: The download failed.
    ImportError: An address needs a package that is not installed.
    ValueError: No rule has this name, or the address is not valid.
    WeightsError: The file does not match its checksum.
  """
  if hub.is_address(text):
    return _checked(*hub.download(text))
  if is_path(text):
    return text
  if text in PUBLISHED:
    return _find_published(text)
  if text in names():
    path = SHIPPED / f'{text}.npz'
    return _checked(str(path), card(text).sha256)
  raise ValueError(
    f'No rule is published or shipped as {text!r}. Valid names: '
    f'{", ".join(names())}. A path must end in .npz or contain {os.sep!r}.'
  )


def as_text(name_or_path: files.PathLike) -> str:
  """Converts to a name, address, or path without ~; a `Path` is not a name."""
  text = config_lib.expanded(name_or_path)
  if isinstance(name_or_path, str) or is_path(text):
    return text
  return os.path.join(os.curdir, text)


def is_path(text: str) -> bool:
  """Returns whether a text is a path or an address, not a name."""
  separators = (os.sep, os.altsep or os.sep)
  return text.endswith('.npz') or any(s in text for s in separators)


def files_among(rules: Iterable[str]) -> dict[str, str]:
  """Maps rules whose files can change, own and shipped ones, to their paths.

  Other rules have fixed checksums.
  """
  of_package = {name: str(SHIPPED / f'{name}.npz') for name in shipped()}
  return {
    rule: of_package.get(rule, rule)
    for rule in rules
    if rule in of_package or (is_path(rule) and not hub.is_address(rule))
  }


def _checked(path: str, sha256: str | None) -> str:
  """Returns the path; raises WeightsError for another SHA-256."""
  found = cards.sha256_of(path)
  if found != sha256:
    raise WeightsError(
      f'{path} has the SHA-256 {found}, but its card or address says {sha256}. '
      'Likely one of the files was replaced or is damaged: get both again.'
    )
  return path


def _find_published(name: str) -> str:
  """Finds the file of a published rule; see `find`."""
  urls, of_rule = PUBLISHED[name]
  url = urls[0]
  sha256 = of_rule.sha256
  assert sha256 is not None
  remedy = (
    f'Download {url} by hand and set {DIRECTORY_VARIABLE} to its directory.'
  )
  directory = os.environ.get(DIRECTORY_VARIABLE)
  if not directory:
    return _download(urls, sha256, remedy)
  path = os.path.join(config_lib.expanded(directory), os.path.basename(url))
  if not os.path.exists(path):
    # The variable was set on purpose: do not use another file instead.
    raise FileNotFoundError(
      f'{DIRECTORY_VARIABLE} is set, but there is no {path}. Put the file of '
      f'{url} there, or unset the variable to download it.'
    )
  digest = cards.sha256_of(path)
  if digest != sha256:
    raise WeightsError(
      f'{path}: not the published {name}: SHA-256 {digest}, expected {sha256}. '
      f'Likely damaged, or another file of that name. {remedy}'
    )
  return path


def _download(urls: Sequence[str], sha256: str, remedy: str) -> str:
  """Returns a path in the cache; downloads the file if missing or different.

  Args:
    urls: The addresses to try in turn.
    sha256: The required SHA-256 of the file.
    remedy: Advice to the user, for messages.
  """
  url, *others = urls
  try:
    cache = pooch.os_cache('disco_rl')
  except RuntimeError as error:  # E.g. in a container without home directories.
    raise OSError(
      f'There is no folder to download {url} to: {error}. {remedy}'
    ) from error
  pooch.get_logger().setLevel('WARNING')
  try:
    return pooch.retrieve(  # noqa: TID251
      url,
      known_hash=f'sha256:{sha256}',
      fname=os.path.basename(url),
      path=cache,
      # A stream would leave the connection open if the status is bad.
      downloader=pooch.HTTPDownloader(stream=False),
    )
  # In this order, because errors of requests can be both.
  except OSError as error:
    if others:
      return _download(others, sha256, remedy)
    raise OSError(
      f'Could not download {url} to {cache}: {error}. {remedy}'
    ) from error
  except ValueError as error:
    raise WeightsError(
      f'{url}: the SHA-256 of the download is not {sha256}. Likely a proxy '
      f'answered with a page of its own, or the published file has changed. '
      f'{remedy}'
    ) from error
