"""What XLA makes of a recorded training step, beside what it makes of the same step written by hand in JAX."""
