"""Question answering: features, answers from spans and from beams, and their scores."""
