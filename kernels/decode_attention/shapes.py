"""Real shapes that the compile table compiles and the benchmark runs."""

from tandem.kernels.attention import shapes

SHAPES = shapes.SHAPES  # by model; the batch is whatever a device holds
# METHODS 2.5's batch on one device of a data=16 mesh: one prompt, 8 siblings.
PROMPTS, GROUP, PROMPT, SLOTS = 1, 8, 512, 3584
QUERIES = (1, 8)  # lockstep; a chunk of a draft
