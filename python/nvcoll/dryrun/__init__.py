"""A training script, unmodified, on GPUs that do not exist: the dry run.

The parent starts one child per role of rank, with a library preloaded that answers for CUDA. The child runs the script
and writes a recording; the parent makes a recorded training step of it, which ``nvcoll.training`` prices.
"""
