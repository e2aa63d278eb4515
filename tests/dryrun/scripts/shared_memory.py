"""Says for 1 to 4 stages of a matrix product in Triton the KiB of shared memory of its launch, or that it fails."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, depth, side: tl.constexpr):
    """Multiplies two bf16 matrices in tiles of `side`."""
    at = tl.arange(0, side)
    total = tl.zeros((side, side), tl.float32)
    for k in range(0, depth, side):
        left = tl.load(a + at[:, None] * depth + k + at[None, :])
        total += tl.dot(left, tl.load(b + (k + at[:, None]) * side + at[None, :]))
    tl.store(c + at[:, None] * side + at[None, :], total)


a, b = (torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for shape in ((128, 512), (512, 128)))
said = []
for stages in range(1, 5):
    try:
        kernel = product[(1,)](
            a, b, torch.empty(128, 128, device="cuda"), 512, side=128, num_stages=stages, num_warps=8
        )
        said.append(kernel.metadata.shared >> 10)
    except triton.runtime.errors.OutOfResources as error:
        said.append(str(error).split(".")[0])
print("SAID", said, flush=True)
