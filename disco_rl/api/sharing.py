"""Sharing discovered rules."""

from disco_rl.runtime import files
from disco_rl.update_rules import cards
from disco_rl.update_rules import hub
from disco_rl.update_rules import weights


def share_rule(path: files.PathLike, repository: str) -> str:
  """Uploads a discovered rule and its card to the Hugging Face Hub.

  The account is that of `hf auth login`, or of the token in HF_TOKEN.

  Args:
    path: of the npz file, with its card beside it, as a discovery writes them.
    repository: OWNER/NAME of a model repository; made, public, if it is new.

  Returns:
    The address of the rule, hf://..., with the commit; `load_rule` takes it.

  Raises:
    OSError: a file is missing, or the upload failed.
    WeightsError: the file holds no rule, or another one than its card says.
    CardError: the card is damaged.
    ImportError: it needs the extra `hub`.
  """
  weights.load(path)
  found = cards.sha256_of(path)
  if (noted := cards.read(cards.path_of(path)).sha256) != found:
    raise weights.WeightsError(
      f'{path} has the SHA-256 {found}, but its card says {noted}: it is the '
      'card of another rule, or of an earlier meta-step. Resume the run, which '
      'writes both again.'
    )
  return hub.upload(path, repository)
