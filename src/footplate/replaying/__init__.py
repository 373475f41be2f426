"""Make one update of a run again, bit for bit, and look into it."""
