"""Configurations: numbers and their meaning."""
