"""An outer engine between threads, with drawn delays, that is as strict as an engine can be."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict, deque

import numpy as np

from nvcoll.hosts.carrier import Late, Lost, Stopped


class Network:
    """Messages between the threads of a process.

    Args:
        size: the number of ranks.
        seed: of the delays.
        delay: the longest delay of a message, in seconds.
    """

    def __init__(self, size, seed=0, delay=0.0):
        self.size, self.delay, self.random = size, delay, random.Random(seed)
        self.changed = threading.Condition()
        self.sent = defaultdict(deque)  # by (from, to, tag): bytes, when they arrive, request
        self.posted = defaultdict(deque)  # by (from or None, to, tag): requests
        self.exchanged = {}
        self.dead, self.cut = set(), set()
        self.bytes = 0

    def engine(self, rank):
        return Fake(self, rank)

    def kill(self, rank):
        """Every connection of a rank breaks."""
        with self.changed:
            self.dead.add(rank)
            self.changed.notify_all()

    def match(self):
        for key, requests in self.posted.items():
            source, to, tag = key
            while requests:
                queues = [q for k, q in self.sent.items() if k[1:] == (to, tag) and source in (None, k[0])]
                ready = [q for q in queues if q and q[0][1] <= time.monotonic()]
                if not ready:
                    break
                message, _, send = ready[0].popleft()
                request, send.is_over = requests.popleft(), True
                assert len(message) <= len(request.buffer), f"{len(message)} bytes for {len(request.buffer)}, {key}"
                request.buffer[: len(message)] = np.frombuffer(message, np.uint8)
                request.is_over = True
                self.changed.notify_all()


class Request:
    def __init__(self, buffer=None, peer=None):
        self.buffer, self.peer, self.is_over, self.is_waited = buffer, peer, False, False


class Fake:
    name, max_tag = "fake", 2**19 - 2

    def __init__(self, network, rank):
        self.network, self.rank, self.size, self.why = network, rank, network.size, None

    def exchange(self, own):
        network = self.network
        with network.changed:
            network.exchanged[self.rank] = own
            network.changed.notify_all()
            assert network.changed.wait_for(lambda: len(network.exchanged) == self.size, 30)
            return [network.exchanged[rank] for rank in range(self.size)]

    def isend(self, x, peer, tag):
        network = self.network
        with network.changed:
            if self.why:
                raise Stopped(self.why)
            if peer in network.dead:
                raise Lost("Connection closed by peer", peer)
            assert 0 <= tag <= self.max_tag and 0 <= peer < self.size and peer != self.rank and x.dtype == np.uint8
            after = network.random.uniform(0, network.delay)
            queue = network.sent[self.rank, peer, tag]
            arrives = max(time.monotonic() + after, queue[-1][1] if queue else 0)
            request = Request(peer=peer)
            if (self.rank, peer) not in network.cut:
                queue.append((bytes(x), arrives, request))
                network.bytes += len(x)
            network.changed.notify_all()
            return request

    def irecv(self, x, peer, tag):
        network = self.network
        with network.changed:
            if self.why:
                raise Stopped(self.why)
            assert x.flags.writeable and x.flags.c_contiguous and x.dtype == np.uint8
            request = Request(x, peer)
            network.posted[peer, self.rank, tag].append(request)
            return request

    def wait(self, requests, deadline):
        network = self.network
        with network.changed:
            for request in requests:
                assert not request.is_waited, "a request is waited for once"
                request.is_waited = True
                while True:
                    network.match()
                    if request.is_over:
                        break
                    if self.why:
                        raise Stopped(self.why)
                    if request.peer in network.dead or self.rank in network.dead:
                        raise Lost("Connection closed by peer", request.peer)
                    if deadline is not None and time.monotonic() > deadline:
                        raise Late("no answer", request.peer)
                    network.changed.wait(0.001 if network.delay else 0.05)
            network.changed.notify_all()

    def poke(self, requests):
        pass

    def close(self, failed):
        with self.network.changed:
            self.why = self.why or failed or "this rank has left the job"
            self.network.changed.notify_all()
