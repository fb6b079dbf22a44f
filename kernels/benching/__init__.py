"""What the benches of all kernels share."""
