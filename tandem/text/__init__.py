"""Tokenizers, chat templates and boundary sets; no torch, no jax."""
