"""Data-parallel training on real digits: eight virtual GPUs, gradients averaged with all_reduce.

    python examples/data_parallel.py             # ranks are threads; or --algorithm ring, tree, two_level
    nvcoll run -n 4 examples/data_parallel.py    # ranks are processes; or torchrun, or mpirun

A two-layer network learns the 1,797 handwritten digits that scikit-learn ships (Alpaydin and Kaynak, UCI 1998). Each
rank holds a replica of the parameters and a shard of the batch. ``avg`` averages the gradients, so replicas stay
bitwise identical. One rank alone gives the same network up to rounding.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time

import numpy as np
from sklearn.datasets import load_digits

import nvcoll

HIDDEN, EPOCHS, BATCH, RATE = 64, 30, 128, 0.5


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training pixels and labels, held-out pixels and labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.data[order] / 16).astype("f4"), digits.target[order]
    return x[:1408], y[:1408], x[1408:], y[1408:]


def initial_parameters() -> np.ndarray:
    """Returns the weights of both layers as one vector."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(0, 0.2, (65, HIDDEN)), rng.normal(0, 0.2, (HIDDEN + 1, 10))
    return np.concatenate([first.ravel(), second.ravel()]).astype("f4")


def forward(parameters: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the second layer's weights, the hidden layer and the class probabilities."""
    first = parameters[: 65 * HIDDEN].reshape(65, HIDDEN)
    second = parameters[65 * HIDDEN :].reshape(HIDDEN + 1, 10)
    hidden = np.tanh(x @ first[:-1] + first[-1])
    scores = hidden @ second[:-1] + second[-1]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return second, hidden, odds / odds.sum(axis=1, keepdims=True)


def gradient(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the gradient of the mean cross-entropy, and the loss."""
    second, hidden, probabilities = forward(parameters, x)
    loss = -np.log(probabilities[np.arange(len(y)), y] + 1e-9).mean()
    error = probabilities.copy()
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    back = (error @ second[:-1].T) * (1 - hidden**2)
    parts = [x.T @ back, back.sum(axis=0, keepdims=True), hidden.T @ error, error.sum(axis=0, keepdims=True)]
    return np.concatenate([part.ravel() for part in parts]).astype("f4"), float(loss)


def accuracy(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Returns the share of digits that are recognised."""
    return float((forward(parameters, x)[2].argmax(axis=1) == y).mean())


def train(comm: nvcoll.Communicator, algorithm: str, *, is_quiet: bool = False) -> tuple[np.ndarray, float]:
    """Trains this rank's replica; returns its parameters and the held-out accuracy."""
    n, rank = comm.world_size, comm.rank
    x, y, x_held_out, y_held_out = load()
    replica = initial_parameters()
    shared = comm.empty(replica.size, "f4")
    times, times_of_numpy, difference = [], [], 0.0
    for epoch in range(EPOCHS):
        losses = []
        for start in range(0, len(y), BATCH):
            shard = slice(start + rank * BATCH // n, start + (rank + 1) * BATCH // n)
            shared[:], loss = gradient(replica, x[shard], y[shard])
            everybody = comm.all_gather(shared).reshape(n, -1)  # what numpy needs, and nvcoll does not
            before = time.perf_counter()
            expected = functools.reduce(np.add, everybody) / np.float32(n)
            middle = time.perf_counter()
            comm.all_reduce(shared, "avg", algorithm=algorithm)
            times.append(time.perf_counter() - middle)
            times_of_numpy.append(middle - before)
            difference = max(difference, float(np.abs(shared - expected).max()))
            replica -= RATE * shared
            losses.append(loss)
        if not is_quiet and rank == 0 and (epoch % 5 == 4 or epoch == 0):
            held_out = accuracy(replica, x_held_out, y_held_out)
            print(f"epoch {epoch + 1:2}   loss {np.mean(losses):.4f}   held-out accuracy {held_out:.1%}")
    if not is_quiet and rank == 0:
        size = f"{len(times)} all_reduce calls of {replica.size} float32 on {n} ranks"
        here, numpy = (statistics.median(found) * 1e6 for found in (times, times_of_numpy))
        print(f"{size}: median {here:.1f} us by {algorithm}, {numpy:.1f} us in numpy (sum and divide)")
        print(f"largest difference to numpy: {difference:.1e}")
    return replica, accuracy(replica, x_held_out, y_held_out)


def compare(comm: nvcoll.Communicator, algorithm: str) -> None:
    """Trains on all ranks and on one, and compares."""
    replica, held_out = train(comm, algorithm)
    replicas = comm.all_gather(replica).reshape(comm.world_size, -1)
    assert all(np.array_equal(replica, other) for other in replicas), "replicas differ"
    if comm.rank > 0:
        return
    alone, _ = nvcoll.Node(1).run(functools.partial(train, algorithm="nvswitch", is_quiet=True))[0]
    distance = float(np.abs(replica - alone).max())
    assert distance < 1e-4, f"one rank gives other parameters: {distance}"
    assert held_out > 0.95, f"held-out accuracy is {held_out:.1%}"
    print(f"parameters bitwise identical on all {comm.world_size} ranks")
    print(f"largest difference to the one-rank run: {distance:.1e} (allowed 1e-4)")
    print(f"held-out accuracy: {held_out:.1%} (must exceed 95 %)")


def main() -> None:
    """Joins the processes that a launcher has started; without one, ranks are threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithm", default="nvswitch", help="nvswitch, ring, tree or two_level")
    parser.add_argument("--ranks", type=int, default=8, choices=[1, 2, 4, 8], help="threads, without a launcher")
    arguments = parser.parse_args()
    comm = nvcoll.init()
    if comm.world_size > 1:
        compare(comm, arguments.algorithm)
    else:
        nvcoll.Node(arguments.ranks).run(compare, arguments.algorithm)


if __name__ == "__main__":
    main()
