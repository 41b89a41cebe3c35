"""Training of agents with a fixed rule: runs, their agents, their episodes."""
