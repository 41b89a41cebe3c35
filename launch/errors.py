"""How launchers end when something is wrong."""

import sys
from typing import NoReturn


def fail(reason: object) -> NoReturn:
  """Ends the program with one line on the standard error stream."""
  sys.exit('error: ' + ' '.join(str(reason).split()))
