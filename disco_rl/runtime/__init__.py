"""Devices, files, signals, metrics and the terminal."""
