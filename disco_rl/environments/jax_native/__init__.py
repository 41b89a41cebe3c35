"""Environments that step on the device."""
