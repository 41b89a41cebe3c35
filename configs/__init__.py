"""Configs of the launchers: settings and their meanings."""
