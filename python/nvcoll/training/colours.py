"""The colours of charts of a step: greys, Okabe and Ito's (2008), which all readers can distinguish, and three more.

Two parts share a colour where few steps have both.
"""

from typing import Final

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILION, PURPLE, GREY, SLATE = "#E69F00", "#D55E00", "#CC79A7", "#9AA0A6", "#5F6670"
PLUM, BROWN, SAND = "#882255", "#7A5230", "#DDCC99"

BUBBLE: Final = "#9AA0A659"
"""The colour behind the spans of a timeline: grey, to a third."""

DARK: Final = (BLUE, VERMILION, GREEN, SLATE, PLUM, BROWN)
"""Colours on which text is white."""

OF_PART: Final = {
    part: colour
    for colour, parts in {
        BLUE: ("gemm", "parameters"),
        SKY: ("attention", "state", "gradients", "cache"),
        GREEN: ("elementwise", "loss", "graphs"),
        PURPLE: ("recompute", "buffers"),
        ORANGE: ("tensor", "activations"),
        VERMILION: ("expert", "context"),
        YELLOW: ("sharded", "data", "nccl"),
        GREY: ("bubble", "reserved"),
        SLATE: ("host", "optimizer"),
        PLUM: ("sends", "temporary"),
        BROWN: ("stall", "frozen"),
        SAND: ("copies", "other"),
    }.items()
    for part in parts
}
"""The colour of a part of the step's time, or of a line of the memory; others are grey."""

PASSES: Final = {
    "forward": SKY,
    "backward": BLUE,
    "weights": GREEN,
    "communication": ORANGE,
    "once in a step": PURPLE,
    "matrix products": BLUE,
    "attention": SKY,
    "other kernels": GREEN,
    "copies": VERMILION,
}
"""Kinds of spans of a timeline. What no span covers is the bubble."""

FITS: Final = {"fits": (BLUE, "circle"), "tight": (ORANGE, "triangle-up"), "too_large": ("#9AA0A680", "cross")}
"""The colour and the shape of a layout, by whether it fits: what does not is grey, to a half."""
