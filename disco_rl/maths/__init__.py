"""Distributions, moments, value targets, optimizers."""
