"""What `import disco_rl` offers to programs of the user's own."""
