"""Programs compiled for machines that are not here, and what they will cost."""
