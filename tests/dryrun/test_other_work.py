"""Work between two steps that is no training: evaluation, which is told, and checkpoints, which overwrite nothing."""

import zipfile

import pytest
from dryrun_children import PATIENT, children, counted

from nvcoll.dryrun.parent.tokens import tokens_of

__all__ = ["children", "counted"]

pytestmark = PATIENT

SCRIPT = "interrupted.py"


def flops_of_forward():
    tokens, width, length, vocabulary = 2 * 256, 256, 256, 512
    block = 2 * tokens * 12 * width * width + 4 * tokens * length * width
    return 2 * block + 2 * tokens * width * vocabulary


def test_reentrant_checkpoints_and_optimizers_are_training(counted):
    recording = counted(SCRIPT)
    assert recording.without_gradients == {} and recording.saves == []
    assert not any(text for _, text in recording.passes)


def test_evaluation_in_the_counted_step_is_told_with_its_share_and_line(counted):
    recording = counted(SCRIPT, "--evaluate")
    share = flops_of_forward() / sum(op.flops for op in recording.ops)
    assert list(recording.without_gradients.values()) == pytest.approx([share])
    assert [line.split()[1] for line in recording.without_gradients] == ["loss_of"]


def test_a_reference_model_that_each_step_runs_is_no_evaluation_and_a_pass_of_its_own(counted):
    recording = counted(SCRIPT, "--reference")
    assert recording.without_gradients == {}
    training, tiny, reference, again = recording.passes
    assert training == (0, "") and tiny[1] == again[1] == "" and reference[1].endswith(" loss_of")
    with_flops = [number for number, op in enumerate(recording.ops) if op.flops > 1000]  # checkpoints are among them
    forward = sum(op.flops for op in recording.ops[reference[0] : again[0]])
    assert reference[0] == with_flops[0] and forward == flops_of_forward()


@pytest.mark.parametrize("work", ["--reference", "--evaluate"])
def test_tokens_are_those_of_passes_with_gradients(counted, work):
    tokens, words = tokens_of([counted(SCRIPT, work)])
    assert tokens == 8 * 2 * 256 and words.startswith("512 that the embedding")


def test_parameters_that_no_optimizer_has_are_frozen_in_the_table_of_memory(counted):
    parts = dict(counted(SCRIPT, "--reference").memory.parts)
    assert parts["frozen parameters"] == parts["parameters"] == 4 * (2 * 12 * 256**2 + 2 * 512 * 256 + 2048)


def saved(children, *args):
    """Output, message and recording of a run that saves."""
    [(out, run, recording)] = children.run(SCRIPT, *args)
    return out, run, recording


def test_a_checkpoint_is_written_read_and_written_again(children, tmp_path):
    file = tmp_path / "checkpoint.pt"
    for _ in range(2):
        out, run, recording = saved(children, "--save", str(file))
        assert run.status == "counted", out
        assert [line.split(":")[0] for line in recording.saves] == [SCRIPT] and file.exists()
        assert any(f"torch.save writes {file}" in one.text for one in recording.assumed)


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_checkpoint_of_the_user_is_not_overwritten(children, tmp_path, is_renamed):
    real, draft = tmp_path / "real.pt", tmp_path / "draft.pt"
    real.write_bytes(b"weeks of work")
    args = ("--save", str(draft), "--replace", str(real)) if is_renamed else ("--save", str(real))
    out, run, _ = saved(children, *args)
    assert run.status == "refused" and run.line.startswith(SCRIPT), out
    assert f"would overwrite {real}" in run.message
    assert real.read_bytes() == b"weeks of work"


def test_a_checkpoint_may_replace_that_of_an_earlier_step(children, tmp_path):
    out, run, _ = saved(children, "--save", str(tmp_path / "draft.pt"), "--replace", str(tmp_path / "last.pt"))
    assert run.status == "counted", out


WAYS = [
    *("save", "path", "older", "serialization", "keyword", "link", "symlink", "rename", "rename of older"),
    *("rename by pathlib", "rename within", "move", "copy", "stream"),
    *("jit", "jit.save", "append", "in place", "remove", "unlink", "truncate", "remove folder"),
]

OLDER = bytes.fromhex("80028a0a6cfc9c46f9206aa85019") + b"weeks of work"
SAFE = (2).to_bytes(8, "little") + b'{"a": 1}' + b"weeks of work"


@pytest.fixture
def archive(tmp_path):
    """A file as torch writes it."""
    with zipfile.ZipFile(tmp_path / "archive.pt", "w") as records:
        records.writestr("archive/data.pkl", b"weeks of work")
    return (tmp_path / "archive.pt").read_bytes()


@pytest.mark.parametrize("kind", ["archive", "older", "safe"])
def test_no_way_loses_a_checkpoint_of_the_user(children, tmp_path, archive, kind):
    content = {"archive": archive, "older": OLDER, "safe": SAFE}[kind]
    for way in WAYS:
        (tmp_path / "files" / way).mkdir(parents=True)
        (tmp_path / "files" / way / "user.pt").write_bytes(content)
    [(out, run, _)] = children.run("loses.py", str(tmp_path / "files"))
    assert [line for line in out.splitlines() if ": " in line] == [f"{way}: DryRunError" for way in WAYS], out
    assert {(tmp_path / "files" / way / "user.pt").read_bytes() for way in WAYS} == {content}
    assert run.status == "ended" and out.count("loaded [1.0, 1.0, 1.0]") == 2, "its own files are written again"


SAFETENSORS = """
import sys, torch
from safetensors.torch import load_file, save_file
for _ in range(2):
    save_file({"w": torch.ones(3)}, sys.argv[1] + "/own.safetensors", metadata={"format": "pt"})
print("loaded", load_file(sys.argv[1] + "/own.safetensors")["w"].tolist())
save_file({"w": torch.ones(3)}, sys.argv[1] + "/user.safetensors")
"""


def test_safetensors_do_not_overwrite_a_checkpoint_of_the_user(children, tmp_path):
    pytest.importorskip("safetensors")
    (tmp_path / "saves.py").write_text(SAFETENSORS)
    (tmp_path / "user.safetensors").write_bytes(SAFE)
    [(out, run, _)] = children.run(tmp_path / "saves.py", str(tmp_path))
    assert run.status == "refused" and run.line == "saves.py:7 <module>" and "loaded [1.0, 1.0, 1.0]" in out
    assert (tmp_path / "user.safetensors").read_bytes() == SAFE


DISTRIBUTED = """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import fully_shard

dist.init_process_group("cpu:gloo,cuda:nccl")
model = torch.nn.Linear(1024, 1024).cuda()
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    weights, states = get_state_dict(model, optimizer)
    if step == 0:
        state = {"model": weights, "optimizer": states, "step": torch.tensor(7)}
        dcp.save(state, checkpoint_id="checkpoint")
        state["step"].zero_()
        dcp.load(state, checkpoint_id="checkpoint")
        for how in AsyncCheckpointerType:
            dcp.async_save(state, checkpoint_id=how.name, async_checkpointer_type=how).result()
        print("loaded", state["step"].item())
"""


def test_a_distributed_checkpoint_has_the_parts_of_the_rank_and_is_loaded(children, tmp_path):
    (tmp_path / "saves.py").write_text(DISTRIBUTED)
    for _ in range(2):
        [(out, run, recording)] = children.run(tmp_path / "saves.py", cwd=tmp_path)
        assert run.status == "counted" and "loaded 7" in out, out
        assert any("distributed checkpoint" in one.text for one in recording.assumed)
    written = {file.name: file.stat().st_size for file in (tmp_path / "PROCESS").iterdir()}
    part = 3 * 4 * (1024 * 1024 + 1024) // 8
    assert part < written["__0_0.distcp"] < 1.1 * part and ".metadata" in written
