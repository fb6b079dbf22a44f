"""Commands, each run as `python -m launch.NAME`."""

import os

# Else transformers, imported for its tokenizers, says that torch is missing.
os.environ.setdefault('TRANSFORMERS_NO_ADVISORY_WARNINGS', '1')
