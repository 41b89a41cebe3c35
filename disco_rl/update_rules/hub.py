"""Rules and policies on the Hugging Face Hub, downloaded by address.

An address is hf://OWNER/REPOSITORY/PATH.npz@REVISION#sha256=DIGEST. It must pin
the file by a commit of 40 digits as REVISION, or by the digest: branches and
tags can change, and a resumed run would then use another rule.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import pathlib
import re
from types import ModuleType

from disco_rl import extras
from disco_rl.runtime import files
from disco_rl.runtime import reports
from disco_rl.update_rules import cards

_PREFIX = 'hf://'
_FORM = 'hf://OWNER/REPOSITORY/PATH.npz@COMMIT, or #sha256=DIGEST at the end'
_ADDRESS = re.compile(
  rf'{_PREFIX}(?P<repository>[\w.-]+/[\w.-]+)/(?P<path>[^@#]+\.npz)'
  r'(@(?P<revision>[^@#]+))?(#sha256=(?P<sha256>[0-9a-f]{64}))?'
)
_COMMIT = re.compile('[0-9a-f]{40}')


def is_address(text: str) -> bool:
  """Returns whether a text is meant as an address."""
  return text.startswith(_PREFIX)


def download(address: str) -> tuple[str, str]:
  """Downloads a rule, and its card if there is one, into the hub's cache.

  Files in the cache are not downloaded again, and are used without a network.

  Args:
    address: The address, in the form that the module describes.

  Returns:
    The path of the npz file, and the SHA-256 that it must have: the one in the
    address, or else the one on its card, which is next to it.

  Raises:
    ValueError: The address is not valid or does not pin the file, or no SHA-256
      is known.
    ImportError: huggingface_hub is not installed.
    OSError: The download failed.
    CardError: The card is damaged, and the address has no SHA-256.
  """
  match = _ADDRESS.fullmatch(address)
  if match is None:
    raise ValueError(f'{address!r} is not an address: expected {_FORM}.')
  revision, sha256 = match['revision'], match['sha256']
  if not sha256 and not _COMMIT.fullmatch(revision or ''):
    raise ValueError(
      f'{address!r} is not pinned: the file there can change, and a run that '
      'is resumed would use another rule. Append @ and a commit of 40 digits '
      "from the repository's history, or #sha256= and the SHA-256 of the file."
    )
  hub = _import(address)
  get = lambda name: _get(hub, address, match['repository'], name, revision)
  path = get(match['path'])
  try:
    card = get(str(cards.path_of(match['path'])))
  except OSError as error:
    # With a digest in the address, the card is only information.
    if sha256 is None and not isinstance(error, FileNotFoundError):
      raise
    card = None
  if sha256 is None and card is not None:
    sha256 = cards.read(card).sha256
  if sha256 is None:
    raise ValueError(
      f'{address!r} has no card with the SHA-256 of the file, which is needed '
      f'to detect damage. It is {cards.sha256_of(path)} now: append it to the '
      'address, as #sha256=DIGEST, if you trust the file.'
    )
  return path, sha256


def upload_rule(path: files.PathLike, repository: str, card: cards.Card) -> str:
  """Uploads the file of a rule and its card; see `api.sharing.share_rule`.

  The names of files contain the beginning of their SHA-256, so that rules do
  not replace each other. README.md has the cards of all rules of the
  repository.
  """
  hub = _import(repository)
  api = hub.HfApi()
  name = _unique(card.name, path)
  with _uploading(repository):
    api.create_repo(repository, exist_ok=True)
    others = []
    for file in api.list_repo_files(repository):
      if file.endswith('.json') and file != f'{name}.json':
        # Others can write to the repository, too.
        try:
          others.append(cards.read(hub.hf_hub_download(repository, file)))
        except cards.CardError as error:
          reports.warn(f'README.md leaves out {file} of {repository}: {error}')
    commit = _commit(
      hub,
      repository,
      {
        f'{name}.npz': str(path),
        f'{name}.json': json.dumps(dataclasses.asdict(card), indent=2).encode(),
        'README.md': _readme(hub, repository, name, [card, *others]).encode(),
      },
    )
  return f'{_PREFIX}{repository}/{name}.npz@{commit}'


def upload_policy(path: files.PathLike, repository: str) -> str:
  """Uploads the file of a policy; see `api.sharing.share_policy`."""
  hub = _import(repository)
  name = _unique(pathlib.Path(path).stem, path)
  with _uploading(repository):
    hub.HfApi().create_repo(repository, exist_ok=True)
    commit = _commit(hub, repository, {f'{name}.npz': str(path)})
  digest = cards.sha256_of(path)
  return f'{_PREFIX}{repository}/{name}.npz@{commit}#sha256={digest}'


@contextlib.contextmanager
def _uploading(repository: str) -> Iterator[None]:
  """Raises OSError for errors of the package's HTTP client."""
  try:
    yield
  except (OSError, ValueError):
    raise
  except Exception as error:
    raise _failure(f'upload to {repository!r}', error) from error


def _failure(task: str, error: Exception) -> OSError:
  """Makes the error for one of the package or of its HTTP client."""
  return OSError(f'Could not {task}: {" ".join(str(error).split())}')


def _unique(name: str, path: files.PathLike) -> str:
  return f'{re.sub("[^a-zA-Z0-9_.]+", "-", name)}-{cards.sha256_of(path)[:8]}'


def _commit(
  hub: ModuleType, repository: str, contents: Mapping[str, str | bytes]
) -> str:
  """Uploads files, given as local paths or bytes; returns the commit."""
  commit = hub.HfApi().create_commit(
    repository,
    [hub.CommitOperationAdd(name, x) for name, x in contents.items()],
    commit_message=f'Add {next(iter(contents))}',
  )
  return commit.oid


def _readme(
  hub: ModuleType, repository: str, name: str, found: Sequence[cards.Card]
) -> str:
  """Returns the model card that the hub shows, about all rules."""
  licenses = sorted({x.license.lower() for x in found if x.license})
  data = hub.ModelCardData(
    library_name='disco_rl',
    license=licenses[0] if len(licenses) == 1 else None,
    pipeline_tag='reinforcement-learning',
    tags=['jax', 'meta-learning', 'reinforcement-learning', 'update-rule'],
  )
  return f"""---
{data.to_yaml()}
---
# Update rules for reinforcement learning

Discovered by {extras.DISTRIBUTION}, which is imported as `disco_rl`, with the
method of [Oh et al., Nature 2025](https://doi.org/10.1038/s41586-025-09761-x).

## Use

```python
import disco_rl

rule = '{_PREFIX}{repository}/{name}.npz@COMMIT'
trainer = disco_rl.Trainer('catch/6x5', rule=rule)
trainer.train(updates=300)
```

COMMIT is a commit in the history of this repository, with 40 digits.

## Limits

Actions must be discrete. The cards below state what is known about a rule: the
environments in which it was discovered, and the returns of new agents in
others. Nothing is known about its use elsewhere. Agents whose settings differ
from those of its discovery may learn nothing.

## Rules

{(2 * chr(10)).join(map(cards.as_markdown, found))}
"""


def _get(
  hub: ModuleType,
  address: str,
  repository: str,
  path: str,
  revision: str | None,
) -> str:
  """Returns the path of a file in the cache; downloads it if needed."""
  try:
    return hub.hf_hub_download(repository, path, revision=revision)
  except hub.errors.RemoteEntryNotFoundError as error:
    raise FileNotFoundError(
      f'{address!r}: {repository} has no file {path} at {revision or "main"}.'
    ) from error
  except Exception as error:
    raise _failure(f'download {address!r}', error) from error


def _import(what: str) -> ModuleType:
  try:
    import huggingface_hub.errors  # noqa: TID251
  except ImportError as error:
    raise ImportError(
      f'{what!r} needs huggingface_hub: {extras.install("hub")}'
    ) from error
  return huggingface_hub
