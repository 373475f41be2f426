"""A first run: a small reader learns to answer questions about people it has never met."""
