"""``python -m nvcoll`` is ``nvcoll``."""

from nvcoll.cli import main

main()
