"""Strategies of hypothesis: calls of any collective, and programs of them."""

from dataclasses import replace

import random_programs
from drawn import HAS_ROOT, OF_ONE_PART, ROWS, Choice, forms_of, pairs_of, parts_of
from hypothesis import strategies as st

PATHS = ("mapped", "staged", "pushed")
COUNTS = [0, 1, 2, 7, 31, 32, 33, 127, 509, 1000, 4099, 20_011]


@st.composite
def choices(draw, row=None, pair=None, world_size=None):
    rows = [row] if row else [row for row in ROWS if pair is None or pair in pairs_of(row[0])]
    collective, algorithm = draw(st.sampled_from(rows))
    op, dtype = pair or draw(st.sampled_from(pairs_of(collective)))
    world_size = world_size or draw(st.integers(1, 17))
    counts = st.sampled_from(COUNTS)
    if collective not in OF_ONE_PART:
        table = st.lists(
            st.sampled_from([0, 0, 1, 2, 7, 33, 100, 1000]),
            min_size=parts_of(collective, world_size),
            max_size=parts_of(collective, world_size),
        )
        counts = st.one_of(counts, table)
    return Choice(
        collective,
        algorithm,
        world_size,
        draw(counts),
        op=op,
        dtype=dtype,
        root=draw(st.integers(0, world_size - 1)) if HAS_ROOT[collective] else 0,
        path=draw(st.sampled_from(PATHS)),
        form=draw(st.sampled_from(forms_of(collective))),
        is_special=draw(st.booleans()),
        offset=draw(st.sampled_from([0, 0, 1, 2, 4, 8, 17])),
        seed=draw(st.integers(0, 2**32 - 1)),
        says_counts=draw(st.booleans()),
    )


@st.composite
def programs(draw, world_size):
    communicators = draw(st.integers(1, 4))
    place = st.integers(0, communicators - 1)
    call = st.tuples(place, choices(world_size=world_size).map(lambda choice: replace(choice, path=None)))
    block = st.builds(
        random_programs.Block,
        issued=st.lists(call, max_size=6),
        last=st.none() | call,
        waits_first=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    return random_programs.Program(communicators, draw(st.lists(block, min_size=1, max_size=4)))
