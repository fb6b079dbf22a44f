"""Every kernel through the real TPU and GPU compilers, with no device here."""
