"""What must not break a node: forks, Ctrl-C, threads that come and go."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np

import nvcoll


def test_a_child_of_a_fork_can_use_the_node():
    node = nvcoll.Node(4, workers=2)
    arrays = [np.ones(1 << 18, dtype="f4") for _ in range(4)]
    node.all_reduce(arrays)
    child = os.fork()
    if child == 0:
        node.all_reduce(arrays)
        os._exit(0 if (arrays[0] == 16).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (arrays[0] == 4).all()


def test_ctrl_c_ends_a_call_and_the_node_is_usable_afterwards():
    script = textwrap.dedent(
        """
        import numpy as np, nvcoll, threading, os, signal
        node = nvcoll.Node(2)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            node.run(lambda comm: comm.rank == 0 or comm.all_reduce(np.ones(4, dtype="f4")))
        except KeyboardInterrupt:
            print("interrupted")
        print(node.run(lambda comm: float(comm.all_reduce(np.ones(1, dtype="f4"))[0])))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["interrupted", "[2.0, 2.0]"], done.stderr
    assert done.returncode == 0 and signal.SIGINT


def test_many_nodes_leave_no_thread_behind():
    before = len(os.listdir("/proc/self/task"))
    for _ in range(20):
        node = nvcoll.Node(4, workers=3)
        node.all_reduce([np.ones(1 << 18, dtype="f4") for _ in range(4)])
        del node
    assert len(os.listdir("/proc/self/task")) <= before
