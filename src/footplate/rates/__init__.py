"""Which learning rate to take: the loss while the rate rises, what it says, and its picture."""
