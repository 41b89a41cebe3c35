"""Files of rules: by the names of published and shipped ones, or by addresses.

Published rules are downloaded from their publishers, and checked against the
SHA-256 that stands here. Shipped ones are files of the package, each with its
card. Addresses are those of `hub`.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import os
import pathlib
from typing import Annotated
from typing import Any
from typing import NamedTuple

import pooch

from disco_rl import config as config_lib
from disco_rl.runtime import files
from disco_rl.update_rules import cards
from disco_rl.update_rules import hub

DIRECTORY_VARIABLE = 'DISCO_RL_WEIGHTS_DIR'
SHIPPED = pathlib.Path(__file__).parent / 'shipped'


def _expand(rule: Any) -> Any:
  """The name of a rule, or its path without ~, as text."""
  return as_text(rule) if isinstance(rule, (str, os.PathLike)) else rule


# A setting: the name, path or address of a rule.
Name = Annotated[str, config_lib.ConvertedBy(_expand)]


class WeightsError(ValueError):
  """A file or a tree of arrays is not the weights of an update rule."""


class Published(NamedTuple):
  """A rule of another project.

  Attributes:
    urls: Addresses of its file, the first of which does not change.
    card: what is known of it, with the SHA-256 of the file.
  """

  urls: tuple[str, ...]
  card: cards.Card


# Of 2 December 2025. Where it does not have the file, the branch may.
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
      # As the page of the project says, "the meta-parameters of Disco103".
      license='Apache-2.0',
    ),
  )
}


def names() -> tuple[str, ...]:
  """Names of the rules that have files, the published ones first."""
  return (*PUBLISHED, *shipped())


def shipped() -> tuple[str, ...]:
  """Names of the rules that ship with the package."""
  return tuple(sorted(path.stem for path in SHIPPED.glob('*.npz')))


def card(name: str) -> cards.Card:
  """The card of one of `names`; raises as `cards.read`."""
  if name in PUBLISHED:
    return PUBLISHED[name].card
  return cards.read(cards.path_of(SHIPPED / f'{name}.npz'))


def find_card(text: str) -> cards.Card | None:
  """The card of a rule, by name, path or address; None: it has none.

  Raises:
    CardError: it is damaged.
  """
  if text in PUBLISHED:
    return PUBLISHED[text].card
  path = cards.path_of(find(text))
  return cards.read(path) if path.exists() else None


def find(text: str) -> str:
  """Path of the file of a rule.

  A published rule is taken from the directory that DISCO_RL_WEIGHTS_DIR names;
  where that is not set, from the user's cache; else it is downloaded into the
  cache. Its SHA-256 is checked wherever it was found, as is that of a shipped
  rule and of one from the Hugging Face Hub.

  Args:
    text: one of `names`, a path, which is returned as it is, or an address of
      `hub`.

  Returns:
    The path.

  Raises:
    FileNotFoundError: DISCO_RL_WEIGHTS_DIR is set and the rule is not there.
    OSError: the download failed.
    ImportError: an address needs a package that is not installed.
    ValueError: there is no rule of this name, or the address is not valid.
    WeightsError: the file is not what its checksum says.
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
  """A name, address, or path without ~; a `pathlib.Path` is never a name."""
  text = config_lib.expanded(name_or_path)
  if isinstance(name_or_path, str) or is_path(text):
    return text
  return os.path.join(os.curdir, text)


def is_path(text: str) -> bool:
  """Whether this is a path or an address, not a name."""
  separators = (os.sep, os.altsep or os.sep)
  return text.endswith('.npz') or any(s in text for s in separators)


def files_among(rules: Iterable[str]) -> dict[str, str]:
  """Rules whose files can change, by path or shipped -> path, each once.

  The checksum of others is part of their names.
  """
  of_package = {name: str(SHIPPED / f'{name}.npz') for name in shipped()}
  return {
    rule: of_package.get(rule, rule)
    for rule in rules
    if rule in of_package or (is_path(rule) and not hub.is_address(rule))
  }


def _checked(path: str, sha256: str | None) -> str:
  """The path; raises WeightsError if its file has another SHA-256."""
  found = cards.sha256_of(path)
  if found != sha256:
    raise WeightsError(
      f'{path} has the SHA-256 {found}, but its card or address says {sha256}. '
      'Likely one of the files was replaced or is damaged: get both again.'
    )
  return path


def _find_published(name: str) -> str:
  """Path of the file of a published rule; see `find`."""
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
    # The variable is set on purpose: no other file is used in its place.
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
  """Path in the cache; downloads a file that is absent or has another hash.

  Args:
    urls: Where the file may be; the next is tried where one cannot be reached.
    sha256: That it must have.
    remedy: What the user can do.
  """
  url, *others = urls
  try:
    cache = pooch.os_cache('disco_rl')
  except RuntimeError as error:  # As of a container without home directories.
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
      # A stream would leave the connection open where the status is bad.
      downloader=pooch.HTTPDownloader(stream=False),
    )
  # In this order: the errors of requests can be both.
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
