"""The programming interface: `import disco_rl`."""
