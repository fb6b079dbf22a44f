"""One token of a pair of models, from two rows of logits, in one pass."""
