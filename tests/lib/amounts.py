"""How many examples property tests draw: 75 where a night draws 300, or ``NVCOLL_EXAMPLES``; others in proportion."""

import os

AT_NIGHT = 300
EXAMPLES = int(os.environ.get("NVCOLL_EXAMPLES", "75"))


def examples(at_night: int) -> int:
    """Returns the examples of a test that draws so many at night."""
    return max(1, at_night * EXAMPLES // AT_NIGHT)
