"""Environments and their adapters."""
