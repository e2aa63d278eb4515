"""Dry runs: a training script, unmodified, on virtual GPUs.

The parent starts one child per kind of rank, with the library of the virtual GPU preloaded. The child runs the script
and writes a recording; the parent makes a recorded training step of it, which ``nvcoll.training`` predicts.
"""
