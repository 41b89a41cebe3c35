"""Finds the file of a rule by its name, path or address.

Published rules are downloaded from their publishers and checked against the
SHA-256 in this module. Shipped rules are files of this package, each with a
card. `hub` describes the format of addresses.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import os
import pathlib
from typing import Annotated
from typing import NamedTuple

import pooch

from disco_rl import config as config_lib
from disco_rl import paths
from disco_rl.runtime import files
from disco_rl.update_rules import cards
from disco_rl.update_rules import hub

DIRECTORY_VARIABLE = 'DISCO_RL_WEIGHTS_DIR'
# The rules that a discovery saves; initial_rule.npz is there from its start.
_OF_RUNS = ('rule.npz', 'newest_rule.npz')
SHIPPED = pathlib.Path(__file__).parent / 'shipped'


def _expand(rule: object) -> object:
  """Converts the name or path of a rule to text, expanding ~ in a path."""
  return as_text(rule) if isinstance(rule, (str, os.PathLike)) else rule


# A setting: the name, path or address of a rule.
Name = Annotated[str, config_lib.Converter(_expand)]


class WeightsError(ValueError):
  """A file or a tree does not contain the weights of a rule."""


class Published(NamedTuple):
  """A rule published by another project.

  Attributes:
    urls: The URLs of the file. The first one is pinned to a commit.
    card: The rule's card, which includes the SHA-256 of the file.
  """

  urls: tuple[str, ...]
  card: cards.Card


# The commit of 2 December 2025. If it is gone, the branch may have the file.
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
        'paper': {'reward_scale': 1.0},
      },
      sha256='dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa',
      # The project's page states it for "the meta-parameters of Disco103".
      license='Apache-2.0',
    ),
  )
}


def names() -> tuple[str, ...]:
  """Returns the names of published rules, then those of shipped rules."""
  return (*PUBLISHED, *shipped())


def shipped() -> tuple[str, ...]:
  """Returns the names of the rules that ship with the package."""
  return tuple(sorted(path.stem for path in SHIPPED.glob('*.npz')))


def card(name: str) -> cards.Card:
  """Returns the card of one of `names`; raises the errors of `cards.read`."""
  if name in PUBLISHED:
    return PUBLISHED[name].card
  return cards.read(cards.path_of(SHIPPED / f'{name}.npz'))


def locate_card(text: str, found: str) -> cards.Card | None:
  """Returns the card of a rule, or None if it has none.

  Args:
    text: The name, path or address of the rule.
    found: The path that `locate` returned.

  Raises:
    CardError: The card is damaged.
  """
  if text in PUBLISHED:
    return PUBLISHED[text].card
  path = cards.path_of(found)
  return cards.read(path) if path.exists() else None


def locate(text: str) -> str:
  """Finds the file of a rule.

  A published rule is read from the directory in DISCO_RL_WEIGHTS_DIR. If this
  variable is not set, the rule is read from the user's cache, and downloaded
  first if needed. The SHA-256 of published rules, shipped rules and rules from
  the Hugging Face Hub is always checked.

  Args:
    text: One of `names`; a path; or an address on the Hugging Face Hub, see
      `hub`.

  Returns:
    The path of the file, absolute.

  Raises:
    FileNotFoundError: There is no such file, or DISCO_RL_WEIGHTS_DIR does not
      contain the rule.
    IsADirectoryError: The path is that of a folder.
    OSError: The download failed.
    ImportError: The address needs a package that is not installed.
    ValueError: No rule has this name, or the address is not valid.
    WeightsError: The file does not match its checksum.
  """
  if hub.is_address(text):
    return _checked(*hub.download(text))
  if is_path(text):
    check_exists(paths.absolute(text))
    return paths.absolute(text)
  if text in PUBLISHED:
    return _find_published(text)
  if text in names():
    path = SHIPPED / f'{text}.npz'
    return _checked(str(path), card(text).sha256)
  raise ValueError(
    f'There is no published or shipped rule {text!r}. Valid names: '
    f'{", ".join(names())}. A path must end in .npz or contain {os.sep!r}.'
  )


def as_text(name_or_path: files.PathLike) -> str:
  """Converts to a name, address, or expanded path; a `Path` is never a name."""
  text = paths.expanded(name_or_path)
  if isinstance(name_or_path, str) or is_path(text):
    return text
  return os.path.join(os.curdir, text)


def is_path(text: str) -> bool:
  """Returns whether a text is a path or an address instead of a name."""
  separators = (os.sep, os.altsep or os.sep)
  return text.endswith('.npz') or any(s in text for s in separators)


def files_among(rules: Iterable[str]) -> dict[str, str]:
  """Maps each rule whose file can change, user-made or shipped, to its path.

  All other rules have fixed checksums.
  """
  of_package = {name: str(SHIPPED / f'{name}.npz') for name in shipped()}
  return {
    rule: of_package.get(rule, paths.absolute(rule))
    for rule in rules
    if rule in of_package or (is_path(rule) and not hub.is_address(rule))
  }


def check_exists(path: str) -> None:
  """Raises OSError, with the likely cause, if a path is not that of a file."""
  folder, name = os.path.split(path)
  within = lambda name: os.path.exists(os.path.join(folder, name))
  if os.path.isdir(path):
    raise IsADirectoryError(
      f'Is a folder, not the file of a rule: {path}. Name the file in it; a '
      f'discovery writes {os.path.join(path, _OF_RUNS[0])}.'
    )
  cause = ''
  if name in _OF_RUNS and within('initial_rule.npz'):
    cause = (
      f'Likely the discovery in {folder} has not saved it yet: rule.npz comes '
      'with the first checkpoint, after checkpoint_every meta-steps. Wait for '
      'that, or resume the run if it was stopped.'
    )
    if within(_OF_RUNS[0]):
      cause = 'Without held-out environments rule.npz is the newest: name that.'
  elif name in _OF_RUNS and within('config.json'):
    cause = (
      f'{folder} holds a run that discovers no rule: name the folder of one of '
      'disco-rl meta-train.'
    )
  files.check_exists(path, cause)


def _checked(path: str, sha256: str | None) -> str:
  """Returns the path; raises WeightsError if the file has another SHA-256."""
  found = cards.sha256_of(path)
  if found != sha256:
    raise WeightsError(
      f'{path} has the SHA-256 {found}, but its card or address says {sha256}. '
      'Likely one of the files was replaced or is damaged: get both again.'
    )
  return path


def _find_published(name: str) -> str:
  """Finds the file of a published rule; see `locate`."""
  urls, known = PUBLISHED[name]
  url, sha256 = urls[0], known.sha256
  assert sha256 is not None
  remedy = (
    f'Download {url} by hand and set {DIRECTORY_VARIABLE} to its directory.'
  )
  directory = os.environ.get(DIRECTORY_VARIABLE)
  if not directory:
    return _download(urls, sha256, remedy)
  path = os.path.join(paths.absolute(directory), os.path.basename(url))
  if not os.path.exists(path):
    # The user set the variable on purpose, so do not fall back to the cache.
    raise FileNotFoundError(
      f'{DIRECTORY_VARIABLE} is set, but there is no {path}. Put the file of '
      f'{url} there, or unset the variable to download it.'
    )
  digest = cards.sha256_of(path)
  if digest != sha256:
    raise WeightsError(
      f'{path} is not the published {name}: its SHA-256 is {digest}, expected '
      f'{sha256}. Likely it is damaged, or another file of this name. {remedy}'
    )
  return path


def _download(urls: Sequence[str], sha256: str, remedy: str) -> str:
  """Returns the path in the cache; tries the URLs in turn if it is not there.

  Error messages end with the remedy.
  """
  url, *others = urls
  try:
    cache = pooch.os_cache('disco_rl')
  except RuntimeError as error:  # For example, if there is no home directory.
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
      # With a stream, an HTTP error would leave the connection open.
      downloader=pooch.HTTPDownloader(stream=False),
    )
  # OSError comes first, because some errors of requests are of both types.
  except OSError as error:
    if others:
      return _download(others, sha256, remedy)
    raise OSError(
      f'Could not download {url} to {cache}: {error}. {remedy}'
    ) from error
  except ValueError as error:
    raise WeightsError(
      f'{url}: the SHA-256 of the download is not {sha256}. Likely a proxy '
      f'answered with its own page, or the published file has changed. '
      f'{remedy}'
    ) from error
