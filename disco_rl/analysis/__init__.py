"""Looking into a rule: what it asks for, what it heeds, what it ignores."""
