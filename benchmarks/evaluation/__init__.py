"""Evaluation side by side: one file per contender."""
