"""A first run: a small model learns to answer questions about people who are not in its training data."""
