"""Hyperparameter search: what a trial may choose, and what it is judged by."""
