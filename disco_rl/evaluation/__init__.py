"""Judging rules by the scores of their agents: comparisons and reports."""
