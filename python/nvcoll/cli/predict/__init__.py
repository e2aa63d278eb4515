"""Commands that ask a model: ``nvcoll predict`` and ``compare``."""
