"""What does a dry run predict for the steps of convolutional and vision models that timm published?

    python tools/training/timm_judge.py RESULTS/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv [MODEL]...

RESULTS is the folder `results` of huggingface/pytorch-image-models, whose names say what was measured: training or
inference, the layout of images, torch, and the GPU. timm and torch are those that are installed (`pip install timm`).
Tables before torch 2.0 are run without fused attention, which they did not have. One GPU, synchronised at each step.
A model takes 5 to 20 s. FITTED chose
`half_rate`, `CHANNELS_FIRST` and `GRADIENTS` (training tables of RTX 3090); other models chose none,
but the structure of the model was chosen with a look at all training rows.
"""

import argparse
import csv
import os
import re
from pathlib import Path
from statistics import median

from nvcoll._nvcoll import fabric, gpus
from nvcoll.dryrun.parent.launch import Request, free_bytes
from nvcoll.dryrun.parent.script import record
from nvcoll.errors import DryRunError
from nvcoll.training import Machine

SCRIPT = Path(__file__).with_name("published_timm.py")
ENDS = next(i for i, line in enumerate(SCRIPT.read_text().splitlines(), 1) if "ends a step" in line)
"""The line of the script that ends a step."""
FITTED = ["resnet18", "resnet50", "vit_large_patch16_224", "mobilenetv3_large_100", "convnext_base"]
HELD_OUT = [
    *("vgg16", "wide_resnet50_2", "resnext50_32x4d", "regnetx_032", "regnety_032", "densenet121", "inception_v3"),
    *("hrnet_w18", "cspdarknet53", "repvgg_b0", "xception41", "efficientnet_b0"),
    *("tf_efficientnetv2_s", "dm_nfnet_f0", "convmixer_768_32", "poolformer_s12"),
    *("swin_base_patch4_window7_224", "vit_base_patch16_224", "mixer_b16_224", "gmlp_s16_224", "levit_256"),
    *("mobilevit_s", "beit_base_patch16_224"),
]
NAME = re.compile(r"benchmark-(train|infer)-amp-(nchw|nhwc)-pt(\d)\d+-cu\d+-(\w+)")


def predicted(row: dict[str, str], mode: str, layout: str, gpu: str) -> tuple[float, float, float]:
    """Returns milliseconds of a step, and the ends of their interval."""
    request = Request(
        str(SCRIPT),
        (row["model"].split(".")[0], mode, layout, row[f"{mode}_batch_size"], row[f"{mode}_img_size"]),
        world_size=1,
        gpu=next(each for each in gpus() if each.name == gpu),
        memory_limit_bytes=free_bytes(),
        is_quiet=True,
        step_at=f"{SCRIPT}:{ENDS}",
    )
    found = Machine(fabric("rtx3090-2-bridge").what_if(f"gpu {gpu}"), 1).predict(record(request).step)
    return 1e3 * found.seconds, 1e3 * found.low_s, 1e3 * found.high_s


def main() -> None:
    """Prints a table, and the median error of models that were not fitted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("models", nargs="*", default=[*FITTED, *HELD_OUT], metavar="MODEL")
    asked = parser.parse_args()
    mode, layout, major, gpu = NAME.findall(asked.table.name)[0]
    os.environ["TIMM_FUSED_ATTN"] = "0" if major == "1" else "1"
    with asked.table.open() as lines:
        ordered = sorted(csv.DictReader(lines), key=lambda row: row[f"{mode}_img_size"] == "224")
        rows = {row["model"].split(".")[0]: row for row in ordered}  # of several sizes that of most models
    errors, inside = [], 0
    print("| model | batch | published | dry run | 90 % | ratio |\n|---|---|---|---|---|---|")
    for model in filter(rows.__contains__, asked.models):
        row = rows[model]
        batch, published = row[f"{mode}_batch_size"], float(row[f"{mode}_step_time"])
        try:
            found, low, high = predicted(row, mode, layout, gpu)
        except DryRunError as error:
            print(f"| {model} | {batch} | {published:.0f} ms | {str(error)[:80]} | | |", flush=True)
            continue
        numbers = f"{published:.0f} ms | {found:.0f} ms | {low:.0f} to {high:.0f} ms | {found / published:.2f}"
        print(f"| {model} | {batch} | {numbers} |", flush=True)
        if model not in FITTED:
            errors.append(abs(found / published - 1))
            inside += low <= published <= high
    print(f"\n{len(errors)} models that were not fitted: median error {median(errors):.1%}, {inside} in the interval")


if __name__ == "__main__":
    main()
