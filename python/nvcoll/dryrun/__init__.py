"""Dry runs: a training script, unmodified, on virtual GPUs.

The parent starts one process per kind of rank, with the library of the virtual GPU preloaded. A rank runs the script
and writes a recording; the parent makes a training step of the recordings, which ``nvcoll.training`` predicts::

    wire      what both processes read and write: specs, records of the virtual GPU, recordings of ranks
    inside    the process of a rank: what happens around torch while the script runs
    parent    the process of the user: starts ranks, keeps recordings, makes a step of them, reports it

``inside`` and ``parent`` use ``wire``, and never each other.
"""
