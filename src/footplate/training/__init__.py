"""What a training run needs besides the loop: plan, running sums, losses, seeds."""
