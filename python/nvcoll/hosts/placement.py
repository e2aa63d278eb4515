"""Who is where: the ranks of a communicator by host.

Ranks of one host are those that can join each other inside it: processes of one boot of one kernel, in one network
namespace (the names under which ranks find each other belong to a network namespace). So two containers of a machine
with networks of their own are two hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Placement:
    """The ranks of a communicator by host. Hosts are ordered by their lowest rank, the ranks of a host ascend.

    Attributes:
        rank: this process, in this communicator.
        hosts: the ranks of each host.
        names: the name of each host, for people; two hosts may have one.
        world: the rank in the job, by rank in this communicator.
    """

    rank: int
    hosts: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    world: tuple[int, ...]

    @classmethod
    def of(cls, rank: int, keys: Sequence[str], names: Sequence[str], world: Sequence[int] | None = None) -> Placement:
        """Returns where ranks are.

        Args:
            rank: this process.
            keys: what identifies the host of each rank.
            names: the name of the host of each rank; the lowest rank of a host names it.
            world: the rank in the job, by rank; default: the same.
        """
        hosts: dict[str, list[int]] = {}
        for one, key in enumerate(keys):
            hosts.setdefault(key, []).append(one)
        ranks = tuple(map(tuple, hosts.values()))
        return cls(rank, ranks, tuple(names[own[0]] for own in ranks), tuple(world or range(len(keys))))

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.world)

    @cached_property
    def host(self) -> int:
        """The host of this rank."""
        return self.host_of(self.rank)

    @property
    def mine(self) -> tuple[int, ...]:
        """The ranks of this rank's host."""
        return self.hosts[self.host]

    @cached_property
    def local(self) -> int:
        """The index of this rank among the ranks of its host."""
        return self.mine.index(self.rank)

    @cached_property
    def rails(self) -> int:
        """The number of ranks that every host has: local ranks from here on have no peer on some host."""
        return min(map(len, self.hosts))

    @cached_property
    def are_neighbours(self) -> bool:
        """Whether the ranks of each host follow each other, so that a fold from host to host is in rank order."""
        return [rank for ranks in self.hosts for rank in ranks] == list(range(self.size))

    @cached_property
    def _host_by_rank(self) -> tuple[int, ...]:
        found = {rank: host for host, ranks in enumerate(self.hosts) for rank in ranks}
        return tuple(found[rank] for rank in range(self.size))

    def host_of(self, rank: int) -> int:
        """Returns the host of a rank."""
        return self._host_by_rank[rank]

    def peer(self, host: int) -> int | None:
        """Returns the rank on a host that has this rank's local index; None if the host has fewer ranks."""
        ranks = self.hosts[host]
        return ranks[self.local] if self.local < len(ranks) else None

    def subset(self, ranks: Sequence[int]) -> Placement:
        """Returns the placement of some ranks of this communicator; this rank is among them.

        Args:
            ranks: ranks of this communicator, in the order of their new ranks.
        """
        hosts = [self.host_of(rank) for rank in ranks]
        names, world = [self.names[host] for host in hosts], [self.world[rank] for rank in ranks]
        return Placement.of(list(ranks).index(self.rank), list(map(str, hosts)), names, world)
