"""Trackers: a run told to services, each behind a guard."""
