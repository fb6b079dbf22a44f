"""Log-probs of given tokens, from hidden states and head, without logits."""
