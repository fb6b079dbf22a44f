"""Attention of a few queries a row over the key/value cache."""
