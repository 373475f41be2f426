"""The loop of an expert and a Trainer in one process, in turn: a busy minute hits both alike."""
