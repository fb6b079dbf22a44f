"""What `launch.benchmark` measures; one suite a file."""
