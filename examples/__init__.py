"""Programs that use disco_rl as a library."""
