"""Rules on the Hugging Face Hub: downloaded by address, uploaded with cards.

An address is hf://OWNER/REPOSITORY/PATH.npz@REVISION#sha256=DIGEST. It must
pin the file: REVISION is a commit of 40 digits, or the digest is there. What a
branch or a tag names can change, and a run that is resumed would use another
rule.
"""

import re
from typing import Any

from disco_rl import extras
from disco_rl.runtime import files
from disco_rl.update_rules import cards

_PREFIX = 'hf://'
_FORM = 'hf://OWNER/REPOSITORY/PATH.npz@COMMIT, or #sha256=DIGEST at the end'
_ADDRESS = re.compile(
  rf'{_PREFIX}(?P<repository>[\w.-]+/[\w.-]+)/(?P<path>[^@#]+\.npz)'
  r'(@(?P<revision>[^@#]+))?(#sha256=(?P<sha256>[0-9a-f]{64}))?'
)
_COMMIT = re.compile('[0-9a-f]{40}')


def is_address(text: str) -> bool:
  """Whether this is meant as an address."""
  return text.startswith(_PREFIX)


def download(address: str) -> tuple[str, str]:
  """Downloads a rule, and its card if there is one, into the hub's cache.

  What is in the cache is not downloaded again; without a network it is used.

  Args:
    address: see the module.

  Returns:
    The path of the npz file, and the SHA-256 that it must have: that of the
    address, else that of its card, which is beside it.

  Raises:
    ValueError: the address is not valid or pins nothing, or no SHA-256 is
      known.
    ImportError: huggingface_hub is not installed.
    OSError: the download failed.
    CardError: the card is damaged, and the address has no SHA-256.
  """
  match = _ADDRESS.fullmatch(address)
  if match is None:
    raise ValueError(f'{address!r} is no address of a rule: expected {_FORM}.')
  revision, sha256 = match['revision'], match['sha256']
  if not sha256 and not _COMMIT.fullmatch(revision or ''):
    raise ValueError(
      f'{address!r} is not pinned: the file there can change, and a run that '
      'is resumed would use another rule. Append @ and a commit of 40 digits, '
      'which the history of the repository shows, or #sha256= and that of the '
      'file.'
    )
  hub = _import(address)
  get = lambda name: _get(hub, address, match['repository'], name, revision)
  path = get(match['path'])
  try:
    card = get(str(cards.path_of(match['path'])))
  except OSError as error:
    # With a digest in the address, the card is there to be read by people.
    if sha256 is None and not isinstance(error, FileNotFoundError):
      raise
    card = None
  if sha256 is None and card is not None:
    sha256 = cards.read(card).sha256
  if sha256 is None:
    raise ValueError(
      f'{address!r} has no card with the SHA-256 of the rule, by which damage '
      f'would be noticed. It is {cards.sha256_of(path)} now: append it to the '
      'address, as #sha256=DIGEST, if you trust the file.'
    )
  return path, sha256


def upload(path: files.PathLike, repository: str) -> str:
  """Uploads the file of a rule with its card; see `api.sharing.share_rule`."""
  hub = _import(repository)
  card = cards.path_of(path)
  names = {str(x): x.name for x in (card.with_suffix('.npz'), card)}
  api = hub.HfApi()
  api.create_repo(repository, exist_ok=True)
  commit = api.create_commit(
    repository,
    [hub.CommitOperationAdd(name, source) for source, name in names.items()],
    commit_message=f'Add the rule {card.stem}',
  )
  return f'{_PREFIX}{repository}/{card.stem}.npz@{commit.oid}'


def _get(
  hub: Any, address: str, repository: str, path: str, revision: str | None
) -> str:
  """The path of a file in the cache, to which it is downloaded if needed."""
  try:
    return hub.hf_hub_download(repository, path, revision=revision)
  except hub.errors.RemoteEntryNotFoundError as error:
    raise FileNotFoundError(
      f'{address!r}: {repository} has no file {path} at {revision or "main"}.'
    ) from error
  # Of the package, and of the one by which it speaks HTTP.
  except Exception as error:
    raise OSError(
      f'Could not download {address!r}: {" ".join(str(error).split())}'
    ) from error


def _import(what: str) -> Any:
  try:
    import huggingface_hub.errors  # noqa: TID251
  except ImportError as error:
    raise ImportError(
      f'{what!r} needs huggingface_hub: {extras.install("hub")}'
    ) from error
  return huggingface_hub
