"""The table of imports has a row for every file, read or refused."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "predict" / "import_table.py"
MATRIX = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def printed(capsys, *arguments: str) -> list[list[str]]:
    spec = importlib.util.spec_from_file_location("import_table", TOOL)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    table.main(arguments)
    return [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]


def test_a_file_is_a_row_whether_it_is_read_or_refused(tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "open.txt").write_text(MATRIX)
    (tmp_path / "named.txt").write_text("GPU 0: NVIDIA RTX A6000 (UUID: GPU-0)\n" + MATRIX)
    (tmp_path / "wrong.xml").write_text("<graphs/>")
    named, still_open, wrong = printed(capsys, str(tmp_path))
    assert named[:7] == ["named.txt", "nvidia-smi topo -m", "2", "RTX A6000", "4", "1", "0"]
    assert still_open[0] == "sub/open.txt" and still_open[-1].startswith("refused: it does not say which GPUs")
    assert wrong[-1].startswith("refused: it is a <graphs>")
    told = printed(capsys, str(tmp_path), "--gpu", "other*=t4", "--gpu", "a40")[1]
    assert told[3:5] == ["A40 (told)", "4"]
