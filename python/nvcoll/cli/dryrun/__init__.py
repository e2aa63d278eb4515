"""``nvcoll dryrun`` and ``nvcoll price``: a training script on machines that you do not have, and its recording."""
