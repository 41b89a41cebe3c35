"""Timings and longer checks."""
