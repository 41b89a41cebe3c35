"""DiscoRL: agents that learn by a discovered rule, and its discovery.

For programs of your own:

  load_rule        a rule by name or from a file.
  Trainer          trains an agent in an environment, also of your own.
  Learner          single updates, for a training loop of your own.
  Heads            what a rule wants on top of a network of your own.
  Rollout          what is learnt from.
  EnvironmentSpec  what there is to see and to do.
"""

import importlib
from typing import Any

_MODULES = {
  'EnvironmentSpec': 'disco_rl.types',
  'Heads': 'disco_rl.networks.heads',
  'Learner': 'disco_rl.library.stepwise',
  'Rollout': 'disco_rl.types',
  'Trainer': 'disco_rl.library.trainer',
  'load_rule': 'disco_rl.library.rules',
}


def __getattr__(name: str) -> Any:
  # Not imported before they are used: launchers answer to a mistyped flag
  # before JAX has loaded.
  if name not in _MODULES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
  return sorted({*globals(), *_MODULES})
