"""What a script reads is noted, and a recording whose script would read something else is not used again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nvcoll.dryrun.parent.inputs import Inputs, UnknownInputs, inputs_of, noted_in

RUN = """
import runpy, sys
from nvcoll.dryrun.inside.reads import Reads
reads = Reads(sys.argv[1], [sys.argv[2]])
reads.begin(sys.argv[4:])
sys.path.insert(0, sys.argv[3].rpartition("/")[0])
sys.argv = sys.argv[3:]
sys.modules.pop("__main__")
runpy.run_module(sys.argv[0], run_name="__main__") if "/" not in sys.argv[0] else runpy.run_path(sys.argv[0])
reads.end()
"""
"""What a rank does around its script, without torch."""

ONE, TWO = "W = 256\n", "W = 512\n"


def write(files):
    """Writes files by name into the current folder."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def read_by(script, *words, **variables):
    """The inputs of a script that runs in the current folder."""
    noted = Path("own/reads").absolute()
    noted.parent.mkdir(exist_ok=True)
    noted.unlink(missing_ok=True)
    script = script if script.startswith("-m") else os.path.abspath(script)
    command = [sys.executable, "-P", "-c", RUN, noted, f"{noted.parent}/", script.removeprefix("-m "), *words]
    ended = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return inputs_of(noted_in(noted))


IN_A_FORK = "import os\nif os.fork():\n    os.wait()\nelse:\n    import conf\n    os._exit(0)"

CASES = {
    "the script": ({"train.py": ONE}, {"train.py": TWO}),
    "a module beside it": ({"train.py": "import conf", "conf.py": ONE}, {"conf.py": TWO}),
    "a package of a module": (
        {"train.py": "import pkg.sub", "pkg/__init__.py": ONE, "pkg/sub.py": ""},
        {"pkg/__init__.py": TWO},
    ),
    "a module of the package above": (
        {"train.py": "import pkg.a.b", "pkg/a/__init__.py": "", "pkg/a/b.py": "from .. import c", "pkg/c.py": ONE},
        {"pkg/c.py": TWO},
    ),
    "a module by its name": (
        {"train.py": "import importlib; importlib.import_module('conf')", "conf.py": ONE},
        {"conf.py": TWO},
    ),
    "a module that another shadows": (
        {"train.py": "import sys; sys.path.insert(1, 'lib'); import conf", "lib/conf.py": ONE},
        {"conf.py": TWO},
    ),
    "a module that was not there": (
        {"train.py": "try:\n    import fast\nexcept ImportError:\n    pass"},
        {"fast/__init__.py": ""},
    ),
    "a module of a fork": ({"train.py": IN_A_FORK, "conf.py": ONE}, {"conf.py": TWO}),
    "a file": ({"train.py": "open('a.txt').read()", "a.txt": "1"}, {"a.txt": "2"}),
    "a file that was not there": ({"train.py": "try:\n    open('a.txt')\nexcept OSError:\n    pass"}, {"a.txt": "2"}),
    "a path that was not there": ({"train.py": "import os; os.path.exists('a.txt')"}, {"a.txt": "2"}),
    "a path of pathlib": ({"train.py": "import pathlib; pathlib.Path('a.txt').exists()"}, {"a.txt": "2"}),
    "a folder": ({"train.py": "import glob; glob.glob('data/*')", "data/1": ""}, {"data/2": ""}),
    "a folder of an iteration": ({"train.py": "import os; os.listdir('data')", "data/1": ""}, {"data/2": ""}),
    "a link": ({"train.py": "open('link').read()", "a.txt": "1", "b.txt": "2"}, "b.txt"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_script_read_counts(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    before, after = CASES[case]
    write(before)
    if case == "a link":
        Path("link").symlink_to("a.txt")
    found = read_by("train.py")
    assert found.changed() == ""
    write({"another": "", "data/../other.py": ""})
    assert found.changed() == "", "files that it did not read"
    if case == "a link":
        Path("link").unlink()
        Path("link").symlink_to(after)
    else:
        write(after)
    assert found.changed() != ""


def test_an_argument_that_is_a_file_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": "", "data.bin": "1"})
    found = read_by("train.py", "--data=data.bin")
    write({"data.bin": "2"})
    assert found.changed() == str(tmp_path / "data.bin")


@pytest.mark.parametrize("name", ["pkg", "pkg.train"])
def test_a_module_that_is_run_counts_with_its_packages(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write({"src/pkg/__init__.py": "", "src/pkg/__main__.py": ONE, "src/pkg/train.py": ONE})
    found = read_by(f"-m {name}", PYTHONPATH=str(tmp_path / "src"))
    write({"src/pkg/__main__.py": TWO, "src/pkg/train.py": TWO})
    assert found.changed().startswith(str(tmp_path / "src/pkg"))


def test_what_was_only_touched_or_copied_is_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": "import conf, glob; glob.glob('data/*')", "conf.py": ONE, "data/1": ""})
    found = read_by("train.py")
    for name in ("train.py", "conf.py"):
        text = Path(name).read_text()
        Path(name).unlink()
        Path(name).write_text(text)
    write({"data/2": ""})
    Path("data/2").unlink()
    assert found.changed() == ""


def test_a_file_whose_time_was_put_back_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": ONE})
    found, times = read_by("train.py"), Path("train.py").stat()
    write({"train.py": TWO})
    os.utime("train.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found.changed() == str(tmp_path / "train.py")


WRITES = """
import glob, os
os.makedirs("out/new", exist_ok=True)
glob.glob("out/*")
for name in ("out/a.txt", "out/b.txt"):
    if not os.path.exists(name):
        open(name, "w").write("1")
    open(name).read()
os.replace("out/b.txt", "out/c.txt")
open("log.txt", "a").write("a line")
"""


def test_what_a_script_writes_itself_does_not_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": WRITES, "log.txt": "", "out/kept": ""})
    found = read_by("train.py")
    assert found.changed() == ""
    write({"out/d.txt": ""})
    assert found.changed() == str(tmp_path / "out")


@pytest.mark.parametrize("text", ["import conf", "open('conf.py').read()", "import os; os.listdir('data')"])
def test_inputs_that_change_while_the_script_runs_are_not_known(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    changes = "import subprocess; subprocess.run(['sh', '-c', 'echo W=4 > conf.py; touch data/2'])"
    write({"train.py": f"{text}\n{changes}", "conf.py": ONE, "data/1": ""})
    with pytest.raises(UnknownInputs, match=r"(conf\.py|data) changed while the script ran"):
        read_by("train.py")
    write({"train.py": f"{changes}\n{text}"})
    assert read_by("train.py").changed() == "", "changed before it was read"


def test_a_script_that_closes_all_descriptors_and_another_folder_are_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": "import os\nos.closerange(3, 100)\nos.chdir('data')\nopen('a.txt')", "data/a.txt": "1"})
    found = read_by("train.py")
    write({"data/a.txt": "2"})
    assert found.changed() == str(tmp_path / "data/a.txt")


STRANGE = """
import os, pathlib
for path in (pathlib.Path("a.txt"), b"a.txt", bytearray(b"a.txt"), "a\\0b", 1.5, None, [], "x" * 5000):
    for call in (open, os.open, os.listdir, os.scandir, os.stat, os.mkdir, os.path.exists, __import__):
        try:
            call(path, os.O_RDONLY) if call is os.open else call(path)
        except Exception as error:
            assert isinstance(error, (OSError, ValueError, TypeError, ImportError)), error
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
try:
    open("a.txt")
except FileNotFoundError:
    pass
open(__file__)
"""


def test_strange_paths_and_a_folder_that_is_gone_are_errors_of_the_script_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": STRANGE, "a.txt": "1"})
    found = read_by("train.py")
    write({"a.txt": "2"})
    assert found.changed() == str(tmp_path / "a.txt")


def test_too_many_inputs_are_not_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": ""})
    monkeypatch.setattr("nvcoll.dryrun.parent.inputs.MOST", 10)
    with pytest.raises(UnknownInputs, match="more than the 10 that are compared"):
        read_by("train.py")


def test_notes_that_are_not_whole_are_none(tmp_path):
    assert noted_in(tmp_path / "reads") is None
    (tmp_path / "reads").write_text('["read", "x", null]\n')
    assert noted_in(tmp_path / "reads") is None
    (tmp_path / "reads").write_text('["begun", "1"]\n["read", "x"')
    assert noted_in(tmp_path / "reads") is None


def test_inputs_can_be_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write({"train.py": "import os, socket; os.listdir(); socket.gethostname(); open('\\udcff', 'w')"})
    found = read_by("train.py")
    found.save(tmp_path / "saved")
    assert Inputs.load(tmp_path / "saved") == found and found.host
    found.host = "another"
    assert found.changed() == "the name of this machine"
