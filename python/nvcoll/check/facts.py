"""Facts beside settings: of lines of ``NCCL_DEBUG=INFO``, of the launch command and of headers."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FACTS = {
    "network": re.compile(r"\bUsing network (\S+(?: Libfabric)?)"),
    "gdr": re.compile(r"\bGPU Direct RDMA (Enabled|Disabled)\b"),
    "nvls": re.compile(r"\bNVLS multicast support is ((?:not )?available)\b"),
    "channels": re.compile(r"\b(\d+) coll channels\b"),
    "nvls_channels": re.compile(r"\b(\d+) nvls channels\b"),
    "gdr_ring": re.compile(r"\bConnected all rings, use ring PXN \d GDR ([01])\b"),
    "nodes": re.compile(
        r"\bnNodes (\d{1,5})\b|--nodes[= ](\d{1,5})\b|\bSLURM_(?:JOB_NUM_|N)NODES=(\d{1,5})\b"
        r"|^\W*(\d{1,5})-nodes?\b|\bUsing devices \(across (\d{1,5}) nodes"
        r"|\b(?:srun|salloc|SBATCH)\b.*?\s-N ?(\d{1,5})\b"
    ),
    "per_node": re.compile(
        r"\bppr:(\d{1,3}):node\b|--ntasks-per-node[= ](\d{1,3})\b|\s-(?:npernode|ppn) (\d{1,3})\b"
        r"|--nproc[-_]per[-_]node[= ](\d{1,3})\b|\bmpi(?:run|exec)\b.*?\s-N (\d{1,3})\b"
    ),
    "gpu": re.compile(r"^GPU \d+: (.+?) \(UUID"),
    "provider": re.compile(r"\b[Ss]elected [Pp]rovider is (\w+)"),
    "instance": re.compile(
        r"\b((?:ml\.)?(?:p[3-6]|g[4-7])\w*\.\w*(?:xlarge|metal)|a[2-4]-\w+gpu-\w+|Standard_N[CD]\w+|BM\.GPU\.[\w.]+\w)"
    ),
    "net_rate": re.compile(r"\bNET\[([\d.]+)\]"),
    "max_rate": re.compile(r"\bmaxBw ([\d.]+)"),
    "nvlinks": re.compile(r"^GPU\d+\s.*?\bNV(\d{1,2})\b"),
    "cards": re.compile(r"\bfound (\d+) nics\b"),
    "mtu": re.compile(r"\bqpn \d+ mtu (\d)\b"),
    "infiniband": re.compile(r"/dev/infiniband'?:? (?:is )?(missing|not found|No such file)"),
    "failure": re.compile(
        r"\bTest (?:NCCL|CUDA) failure \S+ '([^'(/]+[^'(/ ])|\bNCCL error in: \S+, ([\w ]+)"
        r"|\b(Watchdog caught collective operation timeout)"
        r"|\b(async fatal event on QP.*|communicator encountered a fatal error)"
    ),
    "warning": re.compile(
        r"\bWARN (.{4,160})|\b(Duplicate GPU detected|ncclMaxSharedMem \d+ exceeds|Device \d+ marked as failed)"
    ),
    "path": re.compile(r"\bvia ((?:P2P|SHM|NET)/(?:AWS )?\S+)"),
}
"""The name of each fact, and the words of NCCL, its plugins and RCCL from which it follows."""

_LIBRARIES = {
    "RCCL": re.compile(r"\brccl-tests\b|\bRCCL version\b|\bHIP version\b|\+hip\d"),
    "NCCL": re.compile(r"\bnccl-library=|\bNCCL version (?!.*\+hip)"),
}
_HOSTS = re.compile(r"\bmpi(?:run|exec)\b.*?\s(?:--?host|-H)[ =](\S+)")
_CARDS = re.compile(r"\bNET/(?:IB|Socket) ?: Using(?= ?\[)(.*?)(?:;|$)")
_CARD = re.compile(r"\[\d+\] ?([\w.-]+)(?::\d+)?(?:/(IB|RoCE))?")
_OTHER_CARD = re.compile(r"\b(?:mlx5_\w+|bnxt_re\w+|ionic_\d+|rdmap\w+|cxi\d+|hsn\d+)")

_NUMBER = re.compile(r"/\d+(?:[(\[]\d+[)\]])?(?=/|$)")
_OWN_OF_LINE = re.compile(r"\b0x[0-9a-f]+|\d+(?:[.:]\d+)+|\d{4,}")
"""Addresses, ports and sizes of a warning: the same one is said once."""


def told_by(line: str) -> Iterator[tuple[str, str]]:
    """Yields the facts of a line: name and value, as ``path`` and ``NET/IB/GDRDMA``."""
    for name, words in _FACTS.items():
        if (found := words.search(line)) is not None:
            own = _OWN_OF_LINE if name in ("warning", "failure") else _NUMBER
            yield name, own.sub("", found[found.lastindex or 0])
    yield from (("library", name) for name, words in _LIBRARIES.items() if words.search(line))
    if (found := _HOSTS.search(line)) is not None:
        yield "nodes", str(len({host.partition(":")[0] for host in found[1].split(",")}))
    if (found := _CARDS.search(line)) is not None:
        cards = _CARD.findall(found[1])
        yield "cards", str(len(cards))
        yield from (("card", name) for name, _ in cards)
        yield from (("medium", medium) for _, medium in cards if medium)
    elif "NCCL_" not in line:  # settings exclude cards, too
        yield from (("card", name) for name in _OTHER_CARD.findall(line))
