"""Writing responses: sampling, turns, the lockstep loop and its definition."""
