"""Command-line launchers: flags and wiring."""
