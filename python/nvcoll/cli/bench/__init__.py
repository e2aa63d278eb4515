"""Commands that measure: ``nvcoll bench``, ``explain`` and ``tune``."""
