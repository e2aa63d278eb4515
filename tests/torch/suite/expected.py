"""The cases that fail, by backend, with the cause. A case on the list that passes is an error too: take it off."""

UNEVEN = "ProcessGroupGloo::alltoall refuses tensors of unequal sizes, which this case, written for MPI, sends"

EXPECTED: dict[str, dict[str, str]] = {
    "gloo": {
        "test_all_to_all": UNEVEN,
        "test_all_to_all_complex": UNEVEN,
        "test_all_to_all_full_group": UNEVEN,
        "test_all_to_all_group": UNEVEN,
    },
    "nvcoll": {},
}
