"""A model of timm, trained or run as timm's `benchmark.py` does it; run by `timm_judge.py`.

published_timm.py MODEL train|infer nchw|nhwc BATCH PIXELS
"""

import sys

import timm
import torch
from timm.optim import create_optimizer_v2

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = True


def main() -> None:
    """Runs four steps."""
    name, mode, layout, batch, pixels = sys.argv[1:]
    lies = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    model = timm.create_model(name).cuda().to(memory_format=lies).train(mode == "train")
    images = torch.randn(int(batch), 3, int(pixels), int(pixels), device="cuda").to(memory_format=lies)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    for _ in range(4):
        with torch.autocast("cuda"), torch.set_grad_enabled(mode == "train"):
            optimizer.zero_grad()
            made = model(images)
            made = made[0] if isinstance(made, tuple) else made
            if mode == "train":
                target = torch.empty(int(batch), device="cuda", dtype=torch.long).random_(made.shape[1])
                torch.nn.functional.cross_entropy(made, target).backward()
                optimizer.step()
        torch.cuda.synchronize()  # ends a step


if __name__ == "__main__":
    main()
