"""Work between two steps that is no training: evaluation, which is told, and checkpoints, which overwrite nothing."""

import pytest

from dryrun.children import PATIENT, children, counted

__all__ = ["children", "counted"]

pytestmark = PATIENT

SCRIPT = "interrupted.py"


def test_reentrant_checkpoints_and_optimizers_are_training(counted):
    recording = counted(SCRIPT)
    assert recording.without_gradients == {} and recording.saves == []


def test_evaluation_in_the_counted_step_is_told_with_its_share_and_line(counted):
    recording = counted(SCRIPT, "--evaluate")
    tokens, width, length, vocabulary = 2 * 256, 256, 256, 512
    block = 2 * tokens * 12 * width * width + 4 * tokens * length * width
    forward = 2 * block + 2 * tokens * width * vocabulary
    share = forward / sum(op.flops for op in recording.ops)
    assert list(recording.without_gradients.values()) == pytest.approx([share])
    assert [line.split()[1] for line in recording.without_gradients] == ["loss_of"]


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
