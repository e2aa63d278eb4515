"""Features of torch.distributed and of frameworks on it: each trains on CPU ranks and is compared with one process.

::

    test_frameworks.py      one pytest case for each feature and world size
        launcher.py         a set of processes runs features one after the other
            rank.py         what each process does
                ddp.py ...  the features: functions with the decorator `feature`
                    training.py     models, data, and the training of one process

A feature is a function of a `Rank`. It trains, then it compares parameters or losses with those of a training by plain
torch in the same process, which sees the data of all ranks. What the function raises is the failure.

The import of torch takes seconds. So torch's features share a set of processes and its default process group, and so do
those of each framework. If a feature fails on a rank, the set ends, and another set runs the features after it.

``NVCOLL_TORCH_BACKEND`` names the backend: nvcoll if unset, gloo to compare.
"""
