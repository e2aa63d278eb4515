"""``nvcoll plan``: how long a step of training takes on machines, and whether it fits."""
