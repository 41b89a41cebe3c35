"""Update rules, discovered and hand-designed, and their weights."""

import lazy_loader

# `disco_rl.weights` loads this module when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__, submodules=['weights']
)
