"""Haiku modules of agents and of the meta-network."""
