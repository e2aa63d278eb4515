"""The process of the user: `script` records a script, by `launch`, `cache` and `step`; `report` prices and shows it.

It imports ``wire`` and rooms above ``dryrun``: nothing of ``inside``, and no torch.
"""
