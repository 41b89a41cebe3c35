"""Update rules: what an agent learns from."""
