"""What would the collectives of this training step cost on machines that you do not have?

    nvcoll run --on hgx-h100,hgx-a100,pcie4-8-staged examples/tensor_parallel.py
    python examples/tensor_parallel.py --on hgx-h100 hgx-a100 pcie4-8-staged

Eight ranks run the collectives of one step of a transformer, with tensor parallelism of four and data parallelism of
two. Subsets of four ranks sum activations, pairs average gradients, all ranks average the loss. The collectives move
real data and every sum is checked; the layers are not computed. Source of the four all_reduces per layer: Megatron-LM
(Shoeybi et al., 2019).
"""

from __future__ import annotations

import argparse

import numpy as np

import nvcoll

RANKS, TENSOR = 8, 4
LAYERS, TOKENS, WIDTH = 4, 512, 1024


def step(comm: nvcoll.Communicator) -> float:
    """Runs the collectives of one training step and returns the mean loss."""
    tensor, data = comm.split(comm.rank // TENSOR), comm.split(comm.rank % TENSOR)
    activations = np.empty((TOKENS, WIDTH), dtype="f2")
    for _ in range(4 * LAYERS):  # two on the way forward and two on the way back
        activations.fill(1)
        tensor.all_reduce(activations)
        assert (activations == tensor.world_size).all()
    of_layer = [(WIDTH, 3 * WIDTH // TENSOR), (WIDTH // TENSOR, WIDTH), (WIDTH, 4 * WIDTH // TENSOR)]
    gradients = [np.full(shape, comm.rank, dtype="f4") for shape in of_layer * LAYERS]
    with data.group():  # one launch for all of them
        for gradient in gradients:
            data.all_reduce(gradient, "avg")
    assert all((gradient == np.mean(data.ranks)).all() for gradient in gradients)
    loss = np.array([comm.rank], dtype="f4")
    comm.all_reduce(loss, "avg")
    return float(loss[0])


def main() -> None:
    """Runs a step and prints its cost on other machines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", nargs="*", default=[], help="machines; nvcoll fabric lists them")
    arguments = parser.parse_args()

    node = nvcoll.Node(RANKS)
    assert node.run(step) == [np.mean(range(RANKS))] * RANKS
    if arguments.on:
        print(node.report(on=arguments.on))


if __name__ == "__main__":
    main()
