"""Who is where, through which interface, and how ranks on several hosts become one job."""

import dataclasses
import json
import queue
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvcoll
from nvcoll.hosts import interfaces, opening
from nvcoll.hosts.interfaces import Interface, between_hosts, towards
from nvcoll.hosts.placement import Placement

keys = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


@given(keys, st.data())
def test_hosts_are_ordered_by_their_lowest_rank(keys, data):
    rank = data.draw(st.integers(0, len(keys) - 1))
    places = Placement.of(rank, keys, [f"host {key}" for key in keys])
    assert sorted(one for ranks in places.hosts for one in ranks) == list(range(places.size)) == list(places.world)
    assert [ranks[0] for ranks in places.hosts] == sorted(ranks[0] for ranks in places.hosts)
    assert places.names == tuple(f"host {keys[ranks[0]]}" for ranks in places.hosts)
    assert rank in places.mine and places.mine[places.local] == rank
    assert all(keys[one] == keys[rank] for one in places.mine) and places.host_of(rank) == places.host
    assert places.peer(places.host) == rank and places.rails == min(map(len, places.hosts))
    is_sorted = [keys[one] for ranks in places.hosts for one in ranks] == keys
    assert places.are_neighbours == is_sorted


@given(keys, st.data())
def test_a_subset_has_the_places_of_its_ranks(keys, data):
    ranks = data.draw(st.lists(st.sampled_from(range(len(keys))), min_size=1, unique=True))
    rank = data.draw(st.sampled_from(ranks))
    found = Placement.of(rank, keys, keys).subset(ranks)
    assert found == Placement.of(ranks.index(rank), [keys[one] for one in ranks], [keys[one] for one in ranks], ranks)
    again = found.subset([found.rank])
    assert again.world == (rank,) and again.hosts == ((0,),) and again.names == (keys[rank],)


def test_the_interface_towards_this_host_is_loopback():
    assert towards("localhost") == Interface("lo", "127.0.0.1") or towards("localhost") == Interface("lo", "::1")
    assert towards("127.0.1.1").is_loopback and towards("127.0.1.1").name == "lo"


def test_loopback_is_never_used_between_hosts(monkeypatch):
    far, near = Interface("e0", "10.77.0.1"), Interface("lo", "127.0.0.1")
    monkeypatch.setattr(interfaces, "towards", {"10.77.0.2": far}.__getitem__)
    assert between_hosts(far, []) == far
    assert between_hosts(near, ["127.0.1.1", "10.77.0.2"]) == far
    with pytest.raises(OSError, match=r"only the loopback address 127\.0\.0\.1 is known"):
        between_hosts(near, ["127.0.1.1", "::1"])


class Table:
    """An engine of threads, which only exchanges."""

    name = "table"

    def __init__(self, size):
        self.size, self.rows, self.turn = size, {}, threading.Barrier(size)
        self.closed = queue.Queue()

    def of(self, rank):
        made = dataclasses.make_dataclass("Outer", ["rank", "size", "name"])(rank, self.size, "table")
        made.exchange = lambda own: self.exchange(rank, own)
        made.connect = lambda is_one_machine: f"wires {is_one_machine}"
        made.close = self.closed.put
        return made

    def exchange(self, rank, own):
        self.rows[rank] = own
        self.turn.wait(10)
        found = [self.rows[one] for one in range(self.size)]
        self.turn.wait(10)
        return found


def opened(monkeypatch, cards, join):
    """What every rank gets of `open_world`."""
    table, found = Table(len(cards)), {}
    monkeypatch.setattr(opening, "card", lambda rank: cards[rank])

    def rank_program(rank):
        try:
            found[rank] = opening.open_world(table.of(rank), join, 7.0, lambda *made: made)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=rank_program, args=(rank,), daemon=True) for rank in range(len(cards))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [found[rank] for rank in range(len(cards))], list(table.closed.queue)


def card(host="a", **changed):
    card = opening.Card("1.0", f"{host}/1", f"{host}/1", host, 7, f"job of {host}", "ab" * 32)
    return dataclasses.replace(card, **changed)


def test_ranks_of_each_host_join_under_its_first_name(monkeypatch, capsys):
    cards = [card("a"), card("b"), card("a", job="another"), card("b")]
    found, closed = opened(monkeypatch, cards, lambda *place: place)
    for rank, (places, inner, outer, timeout) in enumerate(found):
        host = "ab"[rank % 2]
        assert places == Placement.of(rank, list("abab"), list("abab")) and outer.rank == rank and timeout == 7.0
        assert inner == (rank // 2, 2, f"job of {host}", bytes.fromhex("ab" * 32))
    assert closed == []
    assert capsys.readouterr().err == "nvcoll: 2 hosts (ranks 0 and 2 on a; ranks 1 and 3 on b), by wires False\n"


def test_ranks_on_one_host_need_no_engine(monkeypatch):
    found, closed = opened(monkeypatch, [card(), card()], lambda *place: place[:3])
    assert found == [(0, 2, "job of a"), (1, 2, "job of a")] and closed == [None, None]


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        ([card(), card("b", version="1.1")], r"1\.0 on rank 0 \(a\) and 1\.1 on rank 1 \(b\): install one on all"),
        ([card(), card("b"), card(user=8)], "rank 0 is a process of user 7 and rank 2 of user 8, both on a"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_on_all(monkeypatch, cards, said):
    for error in opened(monkeypatch, cards, lambda *place: place)[0]:
        assert isinstance(error, nvcoll.InvalidArgument)
        with pytest.raises(nvcoll.InvalidArgument, match=said):
            raise error


def test_versions_whose_cards_have_other_fields_are_named(monkeypatch):
    other = dataclasses.make_dataclass("Card", ["version", "name", "color"])("1.1", "b", "red")
    for error in opened(monkeypatch, [card(), other], lambda *place: place)[0]:
        assert isinstance(error, nvcoll.InvalidArgument) and "1.0 on rank 0 (a) and 1.1 on rank 1 (b)" in str(error)


GOOD = dataclasses.asdict(card("b"))


@pytest.mark.parametrize(
    "sent",
    [
        *(b"", b"\xff\x00", b"[]", b"{}", b"7", b"[" * 100_000, b'{"version": "1.0"}', b'{"version": [], "name": "b"}'),
        *(
            json.dumps(GOOD | changed).encode()
            for changed in ({"more": 1}, {"token": "zz"}, {"user": []}, {"user": True})
        ),
        json.dumps({name: value for name, value in GOOD.items() if name != "job"}).encode(),
    ],
    ids=range(13),
)
def test_what_is_no_card_is_named_by_its_rank(sent):
    own = json.dumps(dataclasses.asdict(card())).encode()
    with pytest.raises(nvcoll.InvalidArgument, match="what came as rank 1 is no rank of nvcoll") as caught:
        opening._read([own, sent])
    assert caught.value.ranks == (1,)


def test_a_name_of_a_host_does_not_steer_the_terminal():
    cards = [dataclasses.asdict(card("a")), GOOD | {"name": "\x1b[31mevil\n"}]
    assert opening._read([json.dumps(one).encode() for one in cards])[1].name == r"\x1b[31mevil\n"
    cards[1]["version"] = "9\x1b]0;title\x07"
    with pytest.raises(nvcoll.InvalidArgument) as caught:
        opening._read([json.dumps(one).encode() for one in cards])
    assert str(caught.value).isprintable() and r"9\x1b]0;title\x07 on rank 1" in str(caught.value)


@pytest.mark.parametrize("address", ["a..b", "x" * 300, ".", "ä" * 70])
def test_an_address_that_is_no_name_is_an_invalid_argument(monkeypatch, address):
    pytest.importorskip("torch")
    monkeypatch.setenv("MASTER_ADDR", address)
    with pytest.raises(nvcoll.InvalidArgument, match="MASTER_ADDR"):
        opening.engine(1, 2, False, "a test", 1.0)


@pytest.mark.parametrize("port", ["٢٩٥٠٠", "²", "0", "65536", "-1", "x"])
def test_a_port_is_a_number_in_ascii_digits(monkeypatch, port):
    pytest.importorskip("torch")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", port)
    with pytest.raises(nvcoll.InvalidArgument, match=r"MASTER_PORT=.* is no port"):
        opening.engine(1, 2, False, "a test", 1.0)


@pytest.mark.parametrize("number", ["x", "0", "-1", "٢"])
def test_hosts_are_pretended_by_a_number_of_ranks(monkeypatch, number):
    monkeypatch.setenv(opening.PRETEND, number)
    with pytest.raises(nvcoll.InvalidArgument, match=f"NVCOLL_PRETEND_HOSTS={number} is no number of ranks"):
        opening.card(0)


def test_all_ranks_are_in_the_job_or_none(monkeypatch):
    def join(rank, size, job, token):
        if job.endswith("b"):
            raise nvcoll.Timeout("rank 1 did not come")

    found, _ = opened(monkeypatch, [card(), card("b")], join)
    assert isinstance(found[1], nvcoll.Timeout) and isinstance(found[0], nvcoll.Aborted)
    assert str(found[0]) == "rank 1 could not join the ranks of its host: Timeout: rank 1 did not come, on host b"


def test_what_must_be_installed_is_said(monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    monkeypatch.setattr("nvcoll.hosts.mpi.find_spec", lambda name: None)
    with pytest.raises(nvcoll.InvalidArgument) as error:
        opening.engine(0, 4, True, "SIZE=4, LOCAL_SIZE=2", 5)
    said = "ranks are on several hosts (SIZE=4, LOCAL_SIZE=2): install mpi4py and an MPI, or torch"
    assert str(error.value) == f"{said}; mpi4py is not installed"
    monkeypatch.setenv(opening.BETWEEN, "pigeons")
    with pytest.raises(nvcoll.InvalidArgument, match=r"NVCOLL_BETWEEN=pigeons is no engine .* mpi or gloo"):
        opening.engine(0, 4, True, "", 5)


def test_ranks_on_one_host_load_no_engine():
    program = "import sys, nvcoll; nvcoll.init(); print(*sorted({'torch', 'mpi4py'} & {*sys.modules}))"
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": socket.gethostname()}
    found = subprocess.run([sys.executable, "-c", program], env=place, capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.returncode) == ("\n", 0), found.stderr
