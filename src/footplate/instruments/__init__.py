"""What one update did, measured without changing it: rows, modules, gradients, weights."""
