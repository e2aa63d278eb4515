"""The network interface through which ranks of other hosts reach this one.

It is the one from which the kernel sends to ``MASTER_ADDR``: a connected UDP socket, which sends nothing, has its
address. On the host of ``MASTER_ADDR`` itself the name often resolves to a loopback address (``127.0.1.1`` in
``/etc/hosts``), which no other host reaches; there it is the interface that leads to a rank of another host
(`between_hosts`). ``GLOO_SOCKET_IFNAME`` wins over both.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

SIOCGIFCONF = 0x8912
"""The request for the IPv4 addresses of all interfaces. Cited: netdevice(7)."""

IFREQ_BYTES = 40 if struct.calcsize("P") == 8 else 32
"""The length of an answer for one address: name, family, port, address. Cited: netdevice(7)."""

ADDRESSES = 1024
"""The largest number of IPv4 addresses that is asked for. Chosen."""


@dataclass(frozen=True)
class Interface:
    """An interface of this host.

    Attributes:
        name: its name, empty if the kernel does not list the address.
        address: its address that others reach.
    """

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this host reach it."""
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback

    def __str__(self) -> str:
        return f"{self.name} ({self.address})" if self.name else self.address


def towards(host: str) -> Interface:
    """Returns the interface from which this host sends to another one.

    Args:
        host: a name or an address.

    Raises:
        OSError: the name does not resolve, or no route leads there.
    """
    problem: OSError | None = None
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except UnicodeError as error:  # of an empty or too long part of the name
        raise OSError(f"{host[:300]!r} is no name of a host ({error})") from error
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                own = str(probe.getsockname()[0])
        except OSError as error:
            problem = problem or error
            continue
        return Interface(_names().get(own.partition("%")[0], ""), own)
    raise problem or OSError(f"{host} has no address")


def between_hosts(found: Interface, others: Iterable[str]) -> Interface:
    """Returns an interface that other hosts reach.

    Args:
        found: the interface towards ``MASTER_ADDR``.
        others: the addresses of ranks on other hosts, loopback ones too.

    Raises:
        OSError: there is only a loopback interface.
    """
    if not found.is_loopback:
        return found
    for other in others:
        if not Interface("", other).is_loopback and not (own := towards(other)).is_loopback:
            return own
    raise OSError(f"only the loopback address {found.address} is known, which no other host reaches")


def _names() -> dict[str, str]:
    """Returns the interface of each address of this host."""
    return _names_of_ipv4() | _names_of_ipv6()


def _names_of_ipv4() -> dict[str, str]:
    space = array.array("B", bytes(IFREQ_BYTES * ADDRESSES))
    request = struct.pack("iP", len(space), space.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        used = struct.unpack("iP", fcntl.ioctl(probe, SIOCGIFCONF, request))[0]
    rows = (space[at : at + IFREQ_BYTES].tobytes() for at in range(0, used, IFREQ_BYTES))
    # a further address of an interface may be listed under a name like e0:1
    return {socket.inet_ntoa(row[20:24]): row[:16].split(b"\0")[0].decode().partition(":")[0] for row in rows}


def _names_of_ipv6() -> dict[str, str]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:  # a kernel without IPv6
        return {}
    return {str(ipaddress.IPv6Address(int(row[0], 16))): row[5] for row in rows}
