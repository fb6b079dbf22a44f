"""The network, its cache, its weights, and log-probs of given tokens."""
