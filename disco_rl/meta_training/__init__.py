"""Discovery: one rule learns from the lives of a population of agents."""
