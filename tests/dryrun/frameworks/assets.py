"""What torchtitan's debug configurations read, made here: a tokenizer of bytes and texts of words."""

import json
import random

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>"]


def write_tokenizer(folder):
    """Writes a tokenizer of 256 bytes and two special tokens into a folder.

    Args:
        folder: existing `pathlib.Path`.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(letters + SPECIAL)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_texts(file, texts=200, words=500):
    """Writes texts of random words, the same ones in every run, as JSON lines with the field `text`.

    Args:
        file: `pathlib.Path` in an existing folder.
        texts: number of lines.
        words: words of each text.
    """
    source = random.Random(0)
    names = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(1000)]
    lines = (json.dumps({"text": " ".join(source.choices(names, k=words))}) for _ in range(texts))
    file.write_text("\n".join(lines) + "\n")


def write_torchtitan_assets(folder):
    """Writes the folders `tokenizer` and `texts`.

    Args:
        folder: existing `pathlib.Path`.
    """
    for name in ("tokenizer", "texts"):
        (folder / name).mkdir()
    write_tokenizer(folder / "tokenizer")
    write_texts(folder / "texts/data.json")
