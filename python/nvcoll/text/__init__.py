"""Text for people: numbers in sentences, and tables that fit a terminal."""
