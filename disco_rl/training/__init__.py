"""Training of agents with a fixed rule: runs, agents, and their episodes.

`checks` examines what users hand over, here and in `api`.
"""
