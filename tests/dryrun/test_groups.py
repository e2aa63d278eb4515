"""The ranks of groups: however torch names their communicators, they are the ranks that torch gave."""

import pytest
from dryrun_children import PATIENT, children, collectives, needs_torch

__all__ = ["children"]

pytestmark = PATIENT


@pytest.mark.parametrize("args", [(), ("--older",), ("--older", "--splits")], ids=" ".join)
def test_groups_have_the_ranks_that_the_script_gave_them(children, args):
    [(out, run, recording)] = children.run("groups.py", *args, world_size=16)
    assert run.status == "counted", out
    names = {name for _, name, _ in collectives(recording)}
    ranks = {group.name: group.ranks for group in recording.groups.values() if group.name in names}
    [unnamed] = names - {"TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"}
    assert ranks == {
        "TENSOR_MODEL_PARALLEL_GROUP": (0, 1),
        "DATA_PARALLEL_GROUP": tuple(range(0, 16, 2)),
        unnamed: (0, 4, 8, 12),
    }


def test_a_communicator_of_unknown_ranks_is_refused(children):
    [(out, run, _)] = children.run("groups.py", "--own", world_size=16)
    assert run.status == "refused", out
    assert "of 8 ranks" in run.message and "torch.distributed.new_group" in run.message


@pytest.mark.parametrize("rank", [0, 3])
def test_communicators_without_a_name_are_found_by_their_id_in_the_store(monkeypatch, rank):
    """As torch 2.13 and older makes them: the first rank of a group stores the id, others get the key as the id."""
    needs_torch()
    import numpy as np

    from nvcoll.dryrun.inside.peers import Peers
    from nvcoll.dryrun.inside.store import Answers
    from nvcoll.dryrun.wire.virtual_gpu import RECORD, Kind

    class Log:
        def records(self, _first):
            return np.zeros(0, RECORD)

    peers = Peers(Log(), None, None, None)
    peers.note("9", "DATA_PARALLEL_GROUP", (0, 2, 4, 6), before=0)
    key = "default_pg/0//9//cuda//0"
    name = "communicator 2" if rank == 0 else key
    monkeypatch.setattr(Answers, "values", {key: b"communicator 2".ljust(128, b"\0")} if rank == 0 else {})
    made = np.zeros(1, RECORD)
    made["kind"], made["args"][0, :2] = Kind.COMMUNICATOR, (5, 4)
    found = peers.groups(made, made, [name])
    assert {number: (group.name, group.ranks) for number, group in found.items()} == {
        5: ("DATA_PARALLEL_GROUP", (0, 2, 4, 6))
    }


def test_the_id_of_a_communicator_is_its_key_where_another_rank_made_it(tmp_path, monkeypatch):
    needs_torch()
    from nvcoll.dryrun.inside.mail import Mail
    from nvcoll.dryrun.inside.store import Answers

    first, second = (Mail(tmp_path, rank, (0, 1)) for rank in (0, 1))
    first.publish("0//9//cuda//0", b"communicator 2".ljust(128, b"\0"))
    first.publish("greeting", b"hello")
    monkeypatch.setattr(Answers, "mail", second, raising=False)
    monkeypatch.setattr(Answers, "values", {})
    assert Answers().get("0//9//cuda//0") == b"0//9//cuda//0".ljust(128, b"\0")
    assert Answers().get("greeting") == b"hello"
