"""A store of torch.distributed that answers as if all other ranks had already set their keys.

It replaces `TCPStore`, `FileStore`, `HashStore` and the rendezvous of `env://`, `tcp://` and `file://`; no process
listens and no file is written. Keys of other ranks that run come through the mail.

| call | answer |
|---|---|
| `get` of a key that is set | its value |
| `get` of a key that another rank has set, no NCCL id | its value |
| `get` of any other key | the key itself, padded to 128 bytes: the length of an NCCL id |
| `wait`, `barrier` | yes |
| `check` | yes, except for keys that would say that a rank has failed |
| `add(key, n)` | the sum of this rank; for n = 0, as if all ranks had added the same |
"""

from __future__ import annotations

import torch.distributed as dist

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.mail import Mail

NCCL_ID_BYTES, NCCL_ID = 128, b"communicator "
"""The length of the ids of the virtual NCCL, and how they begin. Each rank counts its own, so ids of two are equal."""

TROUBLE = ("exception_dump", "remote_error")
"""Keys by which a rank reports its failure to the NCCL watchdogs of other ranks."""


class Answers(private.Store):
    """A `torch.distributed.Store` in which all ranks have been. It takes the arguments of all other stores."""

    world_size = 1
    mail: Mail
    values: dict[str, bytes] = {}  # noqa: RUF012 (shared by all stores of the process, as a server would)
    counts: dict[str, int] = {}  # noqa: RUF012
    made: list[Answers] = []  # noqa: RUF012 (older torch forgets Python's methods with the Python object)

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        super().__init__()
        self.made.append(self)

    def set(self, key: str, value: str | bytes) -> None:
        self.values[key] = value if isinstance(value, bytes) else str(value).encode()
        self.mail.publish(key, self.values[key])

    def get(self, key: str) -> bytes:
        if key not in self.values:
            published = self.mail.published(key)
            if published is None or (len(published) == NCCL_ID_BYTES and published.startswith(NCCL_ID)):
                return key.encode()[-NCCL_ID_BYTES + 1 :].ljust(NCCL_ID_BYTES, b"\0")
            return published
        return self.values[key]

    def add(self, key: str, amount: int) -> int:
        self.counts[key] = self.counts.get(key, 0) + amount
        return self.counts[key] if amount else self.counts[key] * self.world_size

    def append(self, key: str, value: str | bytes) -> None:
        self.set(key, self.values.get(key, b"") + (value if isinstance(value, bytes) else str(value).encode()))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        found = self.values.get(key)
        if found is None or found == (expected if isinstance(expected, bytes) else str(expected).encode()):
            self.set(key, desired)
        return self.values[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def delete_key(self, key: str) -> bool:
        self.counts.pop(key, None)
        return self.values.pop(key, None) is not None

    deleteKey = delete_key

    def wait(self, *_args: object) -> None: ...

    def check(self, keys: list[str]) -> bool:
        return not any(trouble in key for key in keys for trouble in TROUBLE)

    def barrier(self, *_args: object, **_kwargs: object) -> None: ...

    def set_timeout(self, _timeout: object) -> None: ...

    def num_keys(self) -> int:
        return len(self.values)

    getNumKeys = num_keys

    def list_keys(self) -> list[str]:
        return sorted(self.values)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Answers:
        return self


def install(world_size: int, mail: Mail) -> None:
    """Makes every store of the process an `Answers`."""
    Answers.world_size, Answers.mail = world_size, mail
    private.replace(private.rendezvous, "_create_c10d_store", lambda *_args, **_kwargs: Answers())
    for module in (dist, private.c10d, private.rendezvous):
        for name in ("TCPStore", "FileStore", "HashStore"):
            if hasattr(module, name):
                setattr(module, name, Answers)
