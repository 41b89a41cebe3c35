"""Distributions, moments, value targets, optimisers."""
