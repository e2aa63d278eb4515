"""Commands about running programs: ``nvcoll run`` and ``dump``."""
