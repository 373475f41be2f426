"""What one training run needs besides the loop: its plan, its sums, its losses, its seeds."""
