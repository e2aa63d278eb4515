"""Ranks in Python: the node of this process, the job of several processes, what they counted and how they ended."""
