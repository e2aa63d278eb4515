"""What the two processes of a dry run tell each other: files, their types, and the records of the virtual GPU.

It imports neither ``inside`` nor ``parent``, and no torch.
"""
