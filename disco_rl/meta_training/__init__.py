"""Discovery: training of a rule on a population of agents."""
