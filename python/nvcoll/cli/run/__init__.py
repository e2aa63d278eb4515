"""Commands about running programs: ``nvcoll run`` and ``trace``."""
