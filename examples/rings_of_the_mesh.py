"""An all_reduce over the three rings of NVLinks that a DGX-1 V100 has, in both directions: six rings in parallel.

nvcoll compare ring,examples/rings_of_the_mesh.py:rings_of_the_mesh --on dgx1-v100 -b 1G
"""

import nvcoll

RINGS = ((0, 1, 2, 3, 7, 5, 6, 4), (0, 2, 6, 7, 4, 5, 1, 3), (0, 3, 2, 1, 5, 6, 7, 4))
"""The eight GPUs in three orders. Every link of the mesh stands once in them."""


@nvcoll.algorithm("all_reduce")
def rings_of_the_mesh(b: nvcoll.Builder) -> None:
    """Sends each chunk round one of the six rings: first its sum, then the result."""
    n, orders = b.world_size, [order for ring in RINGS for order in (ring, ring[::-1])]
    for c in b.chunks(n * len(orders)):
        b.channel(c // n)
        order, first = orders[c // n], c % n
        x = b.input(order[first], c)
        for hop in range(1, n):
            r = order[(first + hop) % n]
            x = b.fold(x, b.input(r, c), into=b.output(r, c))
        for hop in range(n, 2 * n - 1):
            x = b.copy(x, into=b.output(order[(first + hop) % n], c))
