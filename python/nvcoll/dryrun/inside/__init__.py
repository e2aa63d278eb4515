"""The process of a rank: `rank` runs the script, `session` makes the observers around torch while it runs.

It imports torch, ``wire`` and `nvcoll.errors`: nothing of ``parent``, and no other room of nvcoll.
"""
