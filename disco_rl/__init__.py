"""DiscoRL: agents that learn by a discovered rule, and how rules are discovered."""
