"""Which public training scripts run under `nvcoll dryrun`, and what does it predict for them?

    python tools/training/public_scripts.py [--clones FOLDER] [--limit SECONDS] [NAME]...

A row of `public_scripts.toml` is a script as its repository has it, with arguments and tiny data. The tool clones the
repository at the row's commit (from GitHub, or from `FOLDER/owner+name`), makes the data, runs the dry run with a time
limit, and prints a line of a table in Markdown. The output of the script is in `public-NAME.log` of the temporary
folder. Packages that a row names must be installed; the tool installs none. A row takes 10 s to some minutes.

Keys of a row: `name`, `repository`, `commit`, `folder`, `command` (script and arguments), `options` (of nvcoll),
`data` (lines "MAKER PATH ARGUMENTS"), `prepare` (shell), `environment`, `packages`, `published` (with its source), and
`first`: what stopped the first dry run that was ever tried; without it, nothing did. `ours = true`: nvcoll was the
reason.
"""

import argparse
import gzip
import json
import os
import pickle
import pty
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HEAD = (
    "| script | repository@commit | machine | first try | now | step, 90 % | published | memory | dry run |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
DRAW = np.random.default_rng(0)
TERMINAL = pty.openpty()[1]
"""Some scripts ask for the width of their terminal."""


def images(path: Path, each: str = "8", size: str = "256", splits: str = "train,val", form: str = "jpg") -> None:
    """An ImageFolder of two classes."""
    from PIL import Image

    for split in splits.split(","):
        for label in ("first", "second"):
            folder = path / split / label if split else path
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(int(each)):
                picture = DRAW.integers(0, 256, (int(size), int(size), 3), dtype=np.uint8)
                Image.fromarray(picture).save(folder / f"{label}{index:04}.{form}")


def tokens(path: Path, vocabulary: str = "50257", count: str = "1000000", dtype: str = "uint16") -> None:
    """A file of token numbers."""
    DRAW.integers(0, int(vocabulary), int(count)).astype(dtype).tofile(path)


def text(path: Path, words: str = "200000", vocabulary: str = "1000") -> None:
    """Lines of ten words each."""
    drawn = [f"w{index}" for index in DRAW.integers(0, int(vocabulary), int(words))]
    path.write_text("".join(" ".join(drawn[at : at + 10]) + "\n" for at in range(0, len(drawn), 10)))


def archive(path: Path, size: str = "95000000") -> None:
    """A gzip file of letters, in place of enwik8."""
    path.write_bytes(gzip.compress(DRAW.integers(97, 123, int(size), dtype=np.uint8).tobytes(), 1))


def cifar(path: Path, classes: str = "10", count: str = "1000") -> None:
    """Batches of CIFAR-10 or CIFAR-100 in the format of their site."""
    ten = classes == "10"
    folder = path / ("cifar-10-batches-py" if ten else "cifar-100-python")
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{index}" for index in range(1, 6)), "test_batch"] if ten else ["train", "test"]:
        rows = DRAW.integers(0, 256, (int(count), 3072), dtype=np.uint8)
        labels = DRAW.integers(0, int(classes), int(count)).tolist()
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels" if ten else "fine_labels": labels}))
    names = {"label_names" if ten else "fine_label_names": [str(index) for index in range(int(classes))]}
    (folder / ("batches.meta" if ten else "meta")).write_bytes(pickle.dumps(names))


def mnist(path: Path, count: str = "2000") -> None:
    """The four files of MNIST."""
    path.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind, magic, shape in (("images-idx3", 2051, (int(count), 28, 28)), ("labels-idx1", 2049, (int(count),))):
            head = np.array([magic, *shape], ">i4").tobytes()
            content = head + DRAW.integers(0, 10, shape, dtype=np.uint8).tobytes()
            (path / f"{part}-{kind}-ubyte").write_bytes(content)
            (path / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))


def sounds(path: Path, count: str = "32", seconds: str = "3", rate: str = "22050") -> None:
    """Sound files of noise."""
    path.mkdir(parents=True, exist_ok=True)
    for index in range(int(count)):
        with wave.open(str(path / f"{index:04}.wav"), "wb") as file:
            file.setparams((1, 2, int(rate), 0, "NONE", ""))
            file.writeframes(DRAW.integers(-9999, 9999, int(float(seconds) * int(rate))).astype("<i2").tobytes())


FEW: dict[str, object] = {"num_hidden_layers": 4, "intermediate_size": 4096}
"""A part of the layers of large models."""

QWEN2 = FEW | {"hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2, "num_labels": 1}

MODELS: dict[str, tuple[str, str, dict[str, object]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "opt": ("OPTForCausalLM", "OPTConfig", {"hidden_size": 768, "ffn_dim": 3072, "word_embed_proj_dim": 768}),
    "bert": ("BertForMaskedLM", "BertConfig", {}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"hidden_size": 1024, "num_attention_heads": 16, **FEW}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", QWEN2),
    "reward": ("Qwen2ForSequenceClassification", "Qwen2Config", QWEN2),
}
"""Small models of transformers: class, class of the configuration, and its values."""

CHAT = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"


def model(path: Path, kind: str, dtype: str = "bfloat16") -> None:
    """A small model of transformers with random weights, and a tokenizer of bytes."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["<pad>", "<s>", "</s>", "<mask>", "<cls>", "<sep>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytes_ = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    bytes_.pre_tokenizer, bytes_.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = {
        "pad": "<pad>",
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<pad>",
        "mask": "<mask>",
        "cls": "<cls>",
        "sep": "<sep>",
    }
    named = {f"{name}_token": word for name, word in special.items()}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_, model_max_length=512, **named)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(path)
    of_model, of_configuration, values = MODELS[kind]
    torch.set_default_dtype(getattr(torch, dtype))
    ids = {"vocab_size": 32000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    configuration = getattr(transformers, of_configuration)(**ids | values)
    getattr(transformers, of_model)(configuration).save_pretrained(path)


def rows(path: Path, kind: str, count: str = "256") -> None:
    """Rows of text for fine-tuning: `train.jsonl` and `test.jsonl` of a folder, or one file."""

    def words(most: int) -> str:
        return " ".join(f"w{index}" for index in DRAW.integers(0, 1000, DRAW.integers(most // 4, most)))

    def row() -> dict[str, object]:
        asked, said = ({"role": role, "content": words(60)} for role in ("user", "assistant"))
        other = {"role": "assistant", "content": words(60)}
        return {
            "chats": lambda: {"messages": [asked, said]},
            "prompts": lambda: {"prompt": [asked], "solution": "$7$"},
            "pairs": lambda: {"prompt": [asked], "chosen": [said], "rejected": [other]},
            "judged": lambda: {"prompt": [asked], "completion": [said], "label": bool(DRAW.integers(0, 2))},
            "texts": lambda: {"prompt": words(30), "response": words(30), "chosen": words(30), "rejected": words(30)},
            "instructions": lambda: {"instruction": words(20), "input": "", "output": words(60)},
            "sentences": lambda: {"premise": words(15), "hypothesis": words(15), "label": int(DRAW.integers(0, 3))},
            "scored": lambda: {"sentence1": words(15), "sentence2": words(15), "score": float(DRAW.random())},
        }[kind]()

    files = [path] if path.suffix else [path / "train.jsonl", path / "test.jsonl"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row()) + "\n" for _ in range(int(count))))


MAKERS: dict[str, Callable[..., None]] = {
    f.__name__: f for f in (images, tokens, text, archive, cifar, mnist, sounds, model, rows)
}


def clone(row: dict[str, Any], clones: Path | None, folder: Path) -> None:
    """Clones the row's repository at its commit."""
    local = clones and clones / row["repository"].replace("/", "+")
    source = str(local) if local and local.exists() else f"https://github.com/{row['repository']}"
    subprocess.run(["git", "clone", "-q", "--no-checkout", source, folder], check=True)
    subprocess.run(["git", "checkout", "-q", row["commit"]], check=False, cwd=folder)  # a mirror may lack large files


def outcome(row: dict[str, Any], folder: Path, limit: int) -> tuple[str, dict[str, Any] | None]:
    """Makes the row's data and runs its dry run; returns what stopped it, and the report."""
    for line in row.get("data", []):
        maker, path, *arguments = shlex.split(line)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        MAKERS[maker](folder / path, *arguments)
    paths = [str(folder), str(Path(__file__).parent / "unchecked"), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(paths).strip(os.pathsep), "TORCH_HOME": str(folder / "torch_home")}
    environment = os.environ | own | {"WANDB_MODE": "offline"} | row.get("environment", {})
    subprocess.run(row.get("prepare", "true"), shell=True, check=True, cwd=folder, env=environment)
    command = ["nvcoll", "dryrun", "--json", f"--time-limit={limit}", *shlex.split(row.get("options", ""))]
    words = [*command, *shlex.split(row["command"])]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, stdin=TERMINAL)
    Path(tempfile.gettempdir(), f"public-{row['name'].replace('/', '-')}.log").write_text(ran.stderr + ran.stdout)
    if ran.returncode in (0, 3) and ran.stdout:
        report = json.loads(ran.stdout)
        return "; ".join(each["message"] for each in report["out_of_memory"]), report
    return (ran.stderr.strip().splitlines() or ["no message"])[-1], None


def brief(seconds: float) -> str:
    """Three digits of a time."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def line(row: dict[str, Any], clones: Path | None, limit: int) -> str:
    """Runs one row; returns its line of the table."""
    with tempfile.TemporaryDirectory() as name:
        clone(row, clones, Path(name) / "clone")
        begin = time.monotonic()
        stopped, report = outcome(row, Path(name) / "clone" / row.get("folder", "."), limit)
        took = time.monotonic() - begin
    found = report["reports"][0] if report and report["reports"] else None
    step = f"{brief(found['seconds'])} ({brief(found['low_s'])} to {brief(found['high_s'])})" if found else ""
    cells = [
        f"{row['name']}: `{row['command'].split()[0]}`",
        f"{row['repository']}@{row['commit'][:8]}",
        row.get("options", ""),
        ("ours: " if row.get("ours") else "") + row.get("first", "ran"),
        stopped.removeprefix("nvcoll: ") or "ran",
        step,
        row.get("published", ""),
        f"{found['memory_gib']:.1f} GiB" if found else "",
        f"{took:.0f} s",
    ]
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--clones", type=Path, help="folder of clones: owner+name")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a dry run")
    chosen = parser.parse_args()
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["script"]
    if not shutil.which("nvcoll"):
        sys.exit("install nvcoll first")
    print(HEAD)
    for row in rows:
        if not chosen.names or row["name"] in chosen.names:
            print(line(row, chosen.clones, chosen.limit), flush=True)


if __name__ == "__main__":
    main()
