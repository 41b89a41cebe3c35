"""Shares rules and policies."""

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

  README.md of the repository then shows the cards of all its rules. Log in with
  `hf auth login`, or set a token in HF_TOKEN.

  Args:
    path: The npz file of a discovery, with its card next to it.
    repository: OWNER/NAME of a model repository, created as a public one if it
      does not exist.
    license: The SPDX identifier of the license under which you share the rule.

  Returns:
    The address of the rule for `load_rule`, hf://..., with the commit.

  Raises:
    OSError: A file is missing, or the upload failed.
    WeightsError: The file does not contain a rule, or does not match its card.
    ValueError: The name of the repository is not valid.
    CardError: The card is damaged.
    ImportError: The extra `hub` is not installed.
  """
  path = files.expanded(path)
  weights.load(path)
  files.check_exists(
    cards.path_of(path),
    'It is the card, which disco-rl meta-train writes next to a rule: copy '
    'both.',
  )
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
  """Uploads a file written by `Policy.save` to the Hugging Face Hub.

  Args:
    path: The file.
    repository: OWNER/NAME of a model repository, created as a public one if it
      does not exist.

  Returns:
    The address for `load_policy` and `disco-rl play --agent=`, hf://..., with
    the commit and the SHA-256 of the file.

  Raises:
    OSError: The file is missing, or the upload failed.
    ValueError: The file is damaged or does not contain a policy, or the name of
      the repository is not valid.
    ImportError: The extra `hub` is not installed.
  """
  path = files.expanded(path)
  agent_files.read(path)
  return hub.upload_policy(path, repository)
