"""What is made of a run's files: numbers, curves and pages. Imports no jax."""
