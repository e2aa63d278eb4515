"""``nvcoll serve MODELDIR --record FILE``: iterations of the server itself, in the place of planned ones.

The recording is of vLLM 0.33.0, by the first command below, where the file was not there.
"""

import importlib.util
import json
import shutil

import pytest
from agreement import RECORDED
from command_line import cli, refused

import nvcoll
from nvcoll.serving import serve

MODEL = "models/llama3-8b"
COMMAND = ("serve", MODEL, "--tp", "1", "-n", "1", "--on", "hgx-h100", "--record", "own.json.gz")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of a model, and the recording, in the current folder."""
    (tmp_path / MODEL).mkdir(parents=True)
    shutil.copy(RECORDED / "models" / "llama3-8b.json", tmp_path / MODEL / "config.json")
    shutil.copy(RECORDED / "llama3-8b-in-turn.json.gz", tmp_path / "own.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_answers_rest_on_the_iterations_and_the_cache_of_the_server():
    [own] = json.loads(cli(*COMMAND, "--json").stdout)["found"]
    [planned] = json.loads(cli(*COMMAND[:-2], "--json").stdout)["found"]
    assert own["cache_tokens"] == 2_138_080 and planned["cache_tokens"] == pytest.approx(2_138_080, rel=0.03)
    for name in ("ttft_s", "tpot_s", "tokens_per_second"):
        assert own[name] == pytest.approx(planned[name], rel=0.05) and own[name] != planned[name]
    assert "recorded in own.json.gz" in cli(*COMMAND).stdout


def test_from_python_a_folder_is_a_model():
    own = serve(MODEL, on="hgx-h100", gpus=2, record="own.json.gz")
    assert (own.words, own.cache_tokens) == ("TP 1, x 2", 2_138_080)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--precision", "fp8"), "pass another file to record that"),
        (("--tp", "2", "-n", "2"), "pass another file to record that"),
        (("--server", "trtllm"), "trtllm cannot be recorded: choose from vllm, sglang"),
        (("--record", "models/llama3-8b/config.json"), "is no recording"),
    ],
)
def test_a_file_that_does_not_answer_is_refused(more, says):
    assert says in refused(*COMMAND, *more)


def test_another_gpu_is_refused():
    with pytest.raises(nvcoll.InvalidArgument, match="recorded on h100-sxm, not on h200"):
        serve(MODEL, on="hgx-h200", gpus=1, record="own.json.gz")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed")
def test_without_the_server_the_error_names_it():
    assert "vllm is not installed: pip install vllm" in refused(*COMMAND[:-1], "new.json.gz")
