"""A log beside the log of a sister machine: ``--baseline``. The constants of the machine cancel.

The rows of the same collective, number of ranks and size are compared. The interval of a prediction is wider than
the differences on which operators act, 5 to 20 %; the limits here are chosen from that range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from nvcoll._nvcoll import InvalidArgument
from nvcoll.check.log import Log
from nvcoll.text.formatting import counted

SUSPECT_OF_BASELINE, SICK_OF_BASELINE = 0.95, 0.8
"""The least shares of the baseline's busbw of logs that are not suspicious, and not sick. Chosen."""


def times_us(log: Log, baselines: Sequence[Log]) -> Mapping[int, float]:
    """Returns the time of the baseline at each size of a log; of several baselines, the median.

    Raises:
        InvalidArgument: no baseline has a size of the log.
    """
    if not baselines or not log.rows or log.collective is None or log.ranks is None:
        return {}
    times: dict[int, list[float]] = {row.nbytes: [] for row in log.rows}
    for one in baselines:
        if one.wrong_results or one.jobs > 1:
            what = "wrong results" if one.wrong_results else f"{one.jobs} jobs in one table"
            raise InvalidArgument(f"the baseline {one.name} has {what}: pass the log of a healthy machine")
        if (one.collective, one.unlike) == (log.collective, log.unlike) and one.meets(log):
            for row in one.rows:
                times.get(row.nbytes, []).append(row.time_us)
    found = {nbytes: median(of_size) for nbytes, of_size in times.items() if of_size}
    if not found:
        tables = ", ".join(
            f"{one.name} ({one.collective or 'unknown collective'}, {one.ranks or '?'} ranks)" for one in baselines
        )
        raise InvalidArgument(
            f"no size of {log.name} ({log.collective}, {counted(log.ranks, 'rank')}) is in the baseline: {tables}. "
            "Run the same command on both machines"
        )
    return found
