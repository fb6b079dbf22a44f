"""Causal attention over whole rows, to train, to score and to prefill."""
