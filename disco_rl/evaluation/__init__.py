"""Training agents with a fixed rule, and scoring them."""
