"""A log whose last line alone is left: the average busbw of a range of sizes, beside that of a prediction."""

from __future__ import annotations

from statistics import mean

from nvcoll._nvcoll import Fabric
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.text.formatting import sized

WIDE = 2.0
"""An average says little where the ends of its interval differ by more. Chosen."""

ROWS = "an average says little of any one size: pass the lines of the table"


def examined(log: Log, fabric: Fabric) -> tuple[str, list[str]] | None:
    """Returns the verdict on an average and its reasons; None if the log has rows, or lacks range, collective or ranks.

    Raises:
        InvalidArgument: as `Fabric.predict`.
    """
    if log.rows or log.average is None or not log.sizes or log.collective is None or log.ranks != fabric.world_size:
        return None
    found = log.predicted(fabric, [Row(0, nbytes, None, None) for nbytes in log.sizes])
    low, high = (mean(one.busbw * one.time_us / getattr(one, end) for one in found) for end in ("high_us", "low_us"))
    sizes = f"{sized(log.sizes[0])} to {sized(log.sizes[-1])}"
    reason = f"the average is {log.average:.1f} GB/s; of {sizes}, healthy machines print {low:.0f}-{high:.0f}"
    if log.average >= low:
        return ("cannot tell" if high > WIDE * low or log.average > high else "healthy"), [reason, ROWS]
    return "sick" if log.average < low / 2 else "suspicious", [reason, ROWS]
