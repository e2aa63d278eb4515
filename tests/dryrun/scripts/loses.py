"""Tries to lose checkpoints of the user in each way, in the folders of its argument; says what was refused."""

import functools
import os
import pathlib
import shutil
import sys
import warnings

import torch

warnings.simplefilter("ignore")  # torch.jit is deprecated
WEIGHTS = {"w": torch.ones(3)}


def drafted(file, **how):
    """Writes a checkpoint beside a file, and returns its name."""
    torch.save(WEIGHTS, f"{file}.tmp", **how)
    return f"{file}.tmp"


def written(file):
    """Writes a checkpoint to a stream."""
    with open(file, "wb") as stream:
        torch.save(WEIGHTS, stream)


def renamed_within(file):
    """Renames by the descriptor of the folder."""
    folder = os.open(os.path.dirname(drafted(file)), os.O_RDONLY)
    os.replace("user.pt.tmp", "user.pt", src_dir_fd=folder, dst_dir_fd=folder)


WAYS = {
    "save": lambda file: torch.save(WEIGHTS, file),
    "path": lambda file: torch.save(WEIGHTS, pathlib.Path(file)),
    "older": lambda file: torch.save(WEIGHTS, file, _use_new_zipfile_serialization=False),
    "serialization": lambda file: torch.serialization.save(WEIGHTS, file),
    "keyword": lambda file: functools.partial(torch.save, f=file)(WEIGHTS),
    "link": lambda file: (os.link(file, f"{file}.l"), torch.save(WEIGHTS, f"{file}.l")),
    "symlink": lambda file: (os.symlink(file, f"{file}.s"), torch.save(WEIGHTS, f"{file}.s")),
    "rename": lambda file: os.rename(drafted(file), file),
    "rename of older": lambda file: os.rename(drafted(file, _use_new_zipfile_serialization=False), file),
    "rename by pathlib": lambda file: pathlib.Path(drafted(file)).rename(file),
    "rename within": renamed_within,
    "move": lambda file: shutil.move(drafted(file), file),
    "copy": lambda file: shutil.copyfile(drafted(file), file),
    "stream": written,
    "jit": lambda file: torch.jit.script(torch.nn.ReLU()).save(file),
    "jit.save": lambda file: torch.jit.save(torch.jit.script(torch.nn.ReLU()), file),
    "append": lambda file: open(file, "ab").write(b"zeros"),  # noqa: SIM115
    "in place": lambda file: open(file, "r+b").write(b"zeros"),  # noqa: SIM115
    "remove": os.remove,
    "unlink": lambda file: pathlib.Path(file).unlink(),
    "truncate": lambda file: os.truncate(file, 0),
    "remove folder": lambda file: shutil.rmtree(os.path.dirname(file)),
}

for way, lose in WAYS.items():
    file = os.path.join(sys.argv[1], way, "user.pt")
    try:
        lose(file)
        print(f"{way}: lost")
    except Exception as error:
        print(f"{way}: {type(error).__name__}")
for _ in range(2):
    torch.jit.script(torch.nn.ReLU()).save(os.path.join(sys.argv[1], "own.jit"))
for how in (True, False):
    own = os.path.join(sys.argv[1], "own.pt")
    for _ in range(2):
        torch.save(WEIGHTS, own, _use_new_zipfile_serialization=how)
        written(f"{own}.stream")
    os.replace(own, f"{own}.2")
    print("loaded", torch.load(f"{own}.2")["w"].tolist())
    shutil.copyfile(os.path.join(sys.argv[1], "save", "user.pt"), own)
    os.remove(own)
    os.symlink(os.path.join(sys.argv[1], "save", "user.pt"), own)
    os.remove(own)
