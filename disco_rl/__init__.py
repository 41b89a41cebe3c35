"""DiscoRL: agents that learn by a discovered rule, and the discovery of rules."""
