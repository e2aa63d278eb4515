"""Ranks on hosts that are threads: one node, split into hosts, with a fake engine between them."""

from fake_engine import Network

import nvcoll
from nvcoll.hosts.communicator import across
from nvcoll.hosts.placement import Placement


def run_hosts(hosts, program, *, seed=0, delay=0.0, timeout=60.0, network=None):
    """Runs a program on every rank of hosts, given by the ranks of each; returns the results by rank."""
    size = sum(map(len, hosts))
    network = network or Network(size, seed, delay)
    host_of = {rank: host for host, ranks in enumerate(hosts) for rank in ranks}

    def rank_program(comm):
        keys = [str(host_of[rank]) for rank in range(size)]
        places = Placement.of(comm.rank, keys, [f"host-{key}" for key in keys])
        inner = comm.split(host_of[comm.rank])
        made = across(places, inner, network.engine(comm.rank), timeout)
        try:
            return program(made)
        finally:
            made.leave()  # ends its threads

    with nvcoll.Node(size) as node:
        return node.run(rank_program, timeout=120)
