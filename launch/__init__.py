"""Command-line launchers: flags and wiring."""

import importlib
import sys

if not __debug__:
  try:
    importlib.import_module('disco_rl.networks')  # It refuses python -O.
  except ImportError as error:
    sys.exit(f'error: {error}')
