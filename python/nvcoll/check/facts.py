"""Facts from lines of ``NCCL_DEBUG=INFO``, beside settings: the network, its cards, paths of data, channels."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FACTS = {
    "network": re.compile(r"\bUsing network (\S+(?: Libfabric)?)"),
    "gdr": re.compile(r"\bGPU Direct RDMA (Enabled|Disabled)\b"),
    "nvls": re.compile(r"\bNVLS multicast support is ((?:not )?available)\b"),
    "channels": re.compile(r"\b(\d+) coll channels\b"),
    "nvls_channels": re.compile(r"\b(\d+) nvls channels\b"),
    "nodes": re.compile(r"\bnNodes (\d+)\b"),
    "cards": re.compile(r"\bfound (\d+) nics\b"),
    "mtu": re.compile(r"\bqpn \d+ mtu (\d)\b"),
    "infiniband": re.compile(r"/dev/infiniband'?:? (?:is )?(missing|not found|No such file)"),
    "path": re.compile(r"\bvia ((?:P2P|SHM|NET)/(?:AWS )?\S+)"),
}
"""The name of each fact, and the words of NCCL, its plugins and RCCL from which it follows."""

_CARDS = re.compile(r"\bNET/(?:IB|Socket) ?: Using(?= ?\[)(.*?)(?:;|$)")
_CARD = re.compile(r"\[\d+\] ?([\w.-]+)(?::\d+)?(?:/(IB|RoCE))?")
_NUMBER = re.compile(r"/\d+(?:[(\[]\d+[)\]])?(?=/|$)")


def told_by(line: str) -> Iterator[tuple[str, str]]:
    """Yields the facts of a line: name and value, as ``path`` and ``NET/IB/GDRDMA``."""
    for name, words in _FACTS.items():
        if (found := words.search(line)) is not None:
            yield name, _NUMBER.sub("", found[1])
    if (found := _CARDS.search(line)) is not None:
        cards = _CARD.findall(found[1])
        yield "cards", str(len(cards))
        yield from (("card", name) for name, _ in cards)
        yield from (("medium", medium) for _, medium in cards if medium)
