"""DiscoRL: agents that learn by a discovered rule, and its discovery."""
