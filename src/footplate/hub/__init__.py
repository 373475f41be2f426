"""Describe a model in a card, and send it to the Hub."""
