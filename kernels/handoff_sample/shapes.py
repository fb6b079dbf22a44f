"""Real shapes that the compile table compiles and the benchmark runs."""

VOCABULARIES = {'smollm2': 49_152, 'qwen3': 151_936}
ROWS = 128  # METHODS 2.5's batch: 16 prompts of 8
