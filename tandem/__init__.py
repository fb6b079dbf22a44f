"""Tandem: reinforcement learning of language models, two models in a rollout."""

__version__ = '0.1.0'
