"""A real browser to look at pages with."""

from browser import chromium  # noqa: F401 (a fixture)
