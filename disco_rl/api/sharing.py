"""Sharing rules and policies."""

import dataclasses

from disco_rl.api import agent_files
from disco_rl.runtime import files
from disco_rl.update_rules import cards
from disco_rl.update_rules import hub
from disco_rl.update_rules import weights


def share_rule(
  path: files.PathLike, repository: str, *, license: str = 'Apache-2.0'
) -> str:
  """Uploads a discovered rule and its card to the Hugging Face Hub.

  README.md of the repository then shows the cards of all its rules. The account
  is that of `hf auth login`, or of the token in HF_TOKEN.

  Args:
    path: The npz file, with its card next to it, as a discovery writes them.
    repository: OWNER/NAME of a model repository; made, public, if it is new.
    license: SPDX identifier of the licence under which you share the rule.

  Returns:
    The address of the rule, hf://..., with the commit; `load_rule` takes it.

  Raises:
    OSError: a file is missing, or the upload failed.
    WeightsError: the file holds no rule, or another one than its card says.
    CardError: the card is damaged.
    ImportError: it needs the extra `hub`.
  """
  weights.load(path)
  found, card = cards.sha256_of(path), cards.read(cards.path_of(path))
  if card.sha256 != found:
    raise weights.WeightsError(
      f'{path} has the SHA-256 {found}, but its card says {card.sha256}: it is '
      'the card of another rule, or of an earlier meta-step. Resume the run, '
      'which writes both again.'
    )
  card = dataclasses.replace(card, license=license)
  return hub.upload_rule(path, repository, card)


def share_policy(path: files.PathLike, repository: str) -> str:
  """Uploads a file of `Policy.save` to the Hugging Face Hub.

  Args:
    path: The file.
    repository: OWNER/NAME of a model repository; made, public, if it is new.

  Returns:
    The address, hf://..., with the commit and the SHA-256 of the file;
    `load_policy` and `disco-rl play --agent=` take it.

  Raises:
    OSError: the file is missing, or the upload failed.
    ValueError: the file is damaged or does not hold a policy.
    ImportError: it needs the extra `hub`.
  """
  agent_files.read(path)
  return hub.upload_policy(path, repository)
