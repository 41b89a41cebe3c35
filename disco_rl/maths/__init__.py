"""Distributions, moments, value targets, optimizers, statistics of scores."""
