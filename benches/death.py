"""How long after the kill of a rank do the others raise PeerLost?

    python benches/death.py                 50 kills of each row, as a table
    python benches/death.py --kills 10

Three ranks that are processes. Rank 1 holds memory that it has touched, and is killed by SIGKILL:

1. in a call: all ranks make one all_reduce after the other;
2. between calls: the survivors are in code of their own, and call some 20 ms after the kill.

The first time is from just before the system call that kills, in the parent, to the exception in a survivor, both by
the monotonic clock of the machine. The kernel's mark comes after the former, so a bar from the mark is met if this time
meets it. The second time is that of the call which raises.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

RANK = """
import sys, time
import numpy as np
import nvcoll
comm = nvcoll.init(timeout=60)
held = np.ones({mib} << 17) if comm.rank == 1 else None
x = comm.full(100_000, 1.0)
comm.all_reduce(x)
comm.barrier()
if comm.rank == 1:
    print("ready", flush=True)
try:
    if {in_call}:
        while True:
            comm.all_reduce(x)
    if comm.rank == 1:
        time.sleep(60)
    sys.stdin.readline()
    began = time.monotonic()
    comm.all_reduce(x)
except nvcoll.PeerLost as error:
    now = time.monotonic()
    print(now if {in_call} else now - began, error.signal, flush=True)
"""

WAIT_S = 60


def kill_once(mib: int, in_call: bool, number: int) -> list[float]:
    """Kills rank 1 of three, and returns the seconds until each survivor had its exception."""
    program = RANK.format(mib=mib, in_call=in_call)
    place = {"NVCOLL_WORLD_SIZE": "3", "NVCOLL_JOB": f"death-{os.getpid()}-{number}"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **place, "NVCOLL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        assert ranks[1].stdout is not None and ranks[1].stdout.readline() == "ready\n"
        time.sleep(0.05 + number % 10 * 0.001)
        killed = time.monotonic()
        ranks[1].send_signal(signal.SIGKILL)
        time.sleep(0.02)
        texts = [ranks[rank].communicate("go\n", timeout=WAIT_S)[0] for rank in (0, 2)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    told = [text.split() for text in texts]
    assert all(found == "9" for _, found in told), texts
    return [float(seconds) - killed * in_call for seconds, _ in told]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    kills = parser.parse_args().kills
    print(
        f"3 process ranks on {len(os.sched_getaffinity(0))} CPUs, Linux {os.uname().release}, {kills} kills a row, ms"
    )
    print(f"{'victim':<16}{'memory':>10}{'median':>10}{'worst':>10}")
    for in_call in (True, False):
        for mib in (16, 1024):
            seconds = [one for number in range(kills) for one in kill_once(mib, in_call, number)]
            middle, worst = 1e3 * statistics.median(seconds), 1e3 * max(seconds)
            where = "in a call" if in_call else "between calls"
            print(f"{where:<16}{f'{mib} MiB':>10}{middle:>10.2f}{worst:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
