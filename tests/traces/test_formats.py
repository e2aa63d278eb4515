"""Formats of traces: which reads what, and that damaged files are refused with a typed error."""

import functools
import gzip
import json
import tempfile
from pathlib import Path

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import HLO, of_two_layers

import nvcoll
from nvcoll.traces import chakra, kineto, opened, read
from nvcoll.training import plan

TRACES = Path(__file__).parent


@functools.cache
def good(name):
    """The bytes of a good file of each format."""
    if name == "hlo":
        return gzip.decompress((TRACES / "collectives.hlo.gz").read_bytes())
    if name == "kineto":
        return json.dumps(of_two_layers().document).encode()
    if name == "packed":
        return gzip.compress(good("kineto"))
    if name == "step":
        return recorded().to_json().encode()
    metadata, node = (chakra.messages()[name] for name in ("GlobalMetadata", "Node"))
    nodes = [node(id=1, name="gemm", type=4, duration_micros=50), node(id=2, name="sum", type=7, data_deps=[1])]
    nodes[1].attr.add(name="comm_size", int64_val=4096)
    messages = [one.SerializeToString() for one in (metadata(version="1.0.0"), *nodes)]
    return b"".join(bytes([len(one)]) + one for one in messages)


@functools.cache
def recorded():
    return kineto.read([("t.json", of_two_layers().document)], "h100-sxm").steps[0]


@pytest.mark.parametrize("name", ["hlo", "kineto", "packed", "step", "chakra"])
def test_a_file_is_recognised_by_its_content(tmp_path, name):
    (file := tmp_path / "some name").write_bytes(good(name))
    (step,) = read(file)
    assert "streams" in json.loads(step.to_json())


def test_planned_steps_are_read_too(tmp_path):
    (file := tmp_path / "step.json").write_text(
        plan("llama3-8b", on="hgx-h100", zero=3, global_batch=64).step.to_json()
    )
    assert read(file)[0].name.startswith("llama3-8b")


def test_a_folder_stands_for_its_files(tmp_path):
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(of_two_layers(rank).document))
    assert len(json.loads(read(tmp_path)[0].to_json())["streams"]["ranks"]) == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"hello", "has none of the formats"),
        (b"{", "has none of the formats that are read .*Expecting"),
        (b"[" * 100_000, "has none of the formats"),
        (b"{}", "has none of the formats"),
        (b"\x1f\x8b\x08", "cannot be unpacked"),
        (b"\xff\xfe\x00", "has none of the formats"),
        (b'{"schema": "nvcoll.step/9"}', "schema|missing field"),
    ],
)
def test_other_files_are_refused(tmp_path, data, said):
    (file := tmp_path / "x").write_bytes(data)
    with pytest.raises(nvcoll.InvalidArgument, match=said):
        read(file)


def test_files_of_several_formats_and_missing_ones_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(good("hlo"))
    (tmp_path / "b").write_bytes(good("kineto"))
    with pytest.raises(nvcoll.InvalidArgument, match="hlo and kineto: pass files of one format"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "gone")
    (empty := tmp_path / "c").mkdir()
    with pytest.raises(nvcoll.InvalidArgument, match="has no files"):
        read(empty)


def read_or_refuse(data):
    """Reads damaged data: it is a step or a typed error."""
    with tempfile.NamedTemporaryFile(suffix=".3.et") as file:
        file.write(data)
        file.flush()
        try:
            opened([file.name])
        except nvcoll.InvalidArgument as error:
            assert str(error)


FORMATS = st.sampled_from(["hlo", "kineto", "packed", "step", "chakra"])


@settings(max_examples=examples(200), deadline=None)
@given(FORMATS, st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8)), max_size=4))
def test_cuts_and_changed_bytes_give_a_typed_error(name, cut, changes):
    data = bytearray(good(name)[: int(cut * len(good(name)))] if cut < 0.9 else good(name))
    for place, new in changes:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    read_or_refuse(bytes(data))


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5))
VALUES = st.one_of(VALUES, st.lists(VALUES, max_size=2), st.dictionaries(st.text(max_size=3), VALUES, max_size=2))


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_fields_of_other_types_give_a_typed_error(data):
    document = json.loads(good("kineto"))
    for _ in range(data.draw(st.integers(1, 3))):
        at, key = document, data.draw(st.sampled_from([*document]))
        while isinstance(at[key], dict | list) and at[key] and data.draw(st.integers(0, 9)):
            at = at[key]
            key = data.draw(st.sampled_from([*at] if isinstance(at, dict) else [*range(len(at))]))
        at[key] = data.draw(VALUES)
    read_or_refuse(json.dumps(document).encode())


WORDS = st.sampled_from(
    [*"{}()[],=%07", "%x", "%w", "%y", "99999999999", "f32[8]", "dot(", "fusion(", "while(", "all-reduce(", "-done("]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(WORDS, max_size=12), st.integers(0, 400))
def test_words_of_hlo_in_any_order_give_a_typed_error(words, at):
    text = HLO.replace("LINE", "")
    read_or_refuse((text[: 40 + at] + " ".join(words) + text[40 + at :]).encode())
