"""The messages between the two processes of a dry run: files, their types, and the records of the virtual GPU.

It imports neither ``inside`` nor ``parent``, and no torch.
"""
