"""Problems, prompts and their order."""
