"""Weights of update rules that are published: where, and how to get them."""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import difflib
import hashlib
import logging
import os
import pathlib

import pooch

from disco_rl.update_rules import weights_format

DIRECTORY_VARIABLE = 'DISCO_RL_WEIGHTS_DIR'


@dataclasses.dataclass(frozen=True)
class _Publication:
  """Where a rule's weights are published.

  Attributes:
    file: its name in the cache and in the directory of DIRECTORY_VARIABLE.
    url: to download it from.
    sha256: hexadecimal digest of the file.
  """

  file: str
  url: str
  sha256: str

  @property
  def remedy(self) -> str:
    return (
      f'Get {self.file} by hand from {self.url} and set {DIRECTORY_VARIABLE} '
      'to the directory that holds it.'
    )


_PUBLISHED: Mapping[str, _Publication] = {
  'disco103': _Publication(
    file='disco_103.npz',
    url=(
      'https://raw.githubusercontent.com/google-deepmind/disco_rl/main/'
      'disco_rl/update_rules/weights/disco_103.npz'
    ),
    sha256='dac840a15b81e8805326363458c33979626172618f620d9e6e170315388530aa',
  )
}


def read(name: str) -> tuple[str, bytes]:
  """Path and content of the file of a published rule.

  It is taken from the directory that DISCO_RL_WEIGHTS_DIR names; where that is
  not set, from the user's cache; else it is downloaded into the cache.

  Raises:
    FileNotFoundError: DISCO_RL_WEIGHTS_DIR is set and the file is not there.
    OSError: the download failed.
    ValueError: no rule is published under this name.
    WeightsError: the file is not the published one.
  """
  if name not in _PUBLISHED:
    nearest = difflib.get_close_matches(
      name.lower(), list(_PUBLISHED), cutoff=0.0
    )
    raise ValueError(
      f'No rule is published as {name!r}. Nearest valid names: '
      f'{", ".join(nearest)}. A path must end in .npz or contain {os.sep!r}.'
    )
  publication = _PUBLISHED[name]
  path = _path_in_directory(publication) or _path_in_cache(publication)
  data = pathlib.Path(path).read_bytes()
  digest = hashlib.sha256(data).hexdigest()
  if digest != publication.sha256:
    raise weights_format.WeightsError(
      f'{path}: not the published {name}: SHA-256 {digest}, expected '
      f'{publication.sha256}. Likely damaged, or another file of that name. '
      f'{publication.remedy}'
    )
  return path, data


def _path_in_directory(publication: _Publication) -> str | None:
  directory = os.environ.get(DIRECTORY_VARIABLE)
  if not directory:
    return None
  path = os.path.join(directory, publication.file)
  if not os.path.exists(path):
    # Whoever sets the variable wants that file: no other may stand in for it.
    raise FileNotFoundError(
      f'{DIRECTORY_VARIABLE} is set, but there is no {path}. Put the file of '
      f'{publication.url} there, or unset the variable to download it.'
    )
  return path


def _path_in_cache(publication: _Publication) -> str:
  """Path in the cache; downloads what is not there or has another SHA-256."""
  cache = pooch.os_cache('disco_rl')
  try:
    with _quiet(pooch.get_logger()):
      return pooch.retrieve(  # noqa: TID251
        publication.url,
        known_hash=f'sha256:{publication.sha256}',
        fname=publication.file,
        path=cache,
        # A stream would leave the connection open where the status is bad.
        downloader=pooch.HTTPDownloader(stream=False),
      )
  # In this order: what requests raises can be both.
  except OSError as error:
    raise OSError(
      f'Could not download {publication.url} to {cache}: {error}. '
      f'{publication.remedy}'
    ) from error
  except ValueError as error:
    raise weights_format.WeightsError(
      f'{publication.url}: what was downloaded was discarded, as its SHA-256 '
      f'is not {publication.sha256}. Likely a proxy answered with a page of '
      f'its own, or the published file has changed. {publication.remedy}'
    ) from error


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
  level = logger.level
  logger.setLevel(logging.WARNING)
  try:
    yield
  finally:
    logger.setLevel(level)
