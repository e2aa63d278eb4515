"""Processes that a script starts in a dry run: those of multiprocessing are of its rank, programs are not."""

import sys
from pathlib import Path

import pytest
from dryrun_children import PATIENT, children

from nvcoll.dryrun.parent.inputs import inputs_of, noted_in

__all__ = ["children"]

pytestmark = PATIENT

SPAWNS = """
import multiprocessing, os, sys

def work(queue):
    import conf, torch
    queue.put((os.environ.get("LD_PRELOAD"), torch.cuda.get_device_name(0)))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print("found", *queue.get())
    process.join()
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_a_process_of_multiprocessing_has_the_virtual_gpu_and_notes_what_it_reads(children, tmp_path, how):
    (tmp_path / "spawns.py").write_text(SPAWNS)
    (tmp_path / "conf.py").write_text("")
    [(out, _, _)] = children.run(tmp_path / "spawns.py", how)
    assert "found None NVIDIA H100" in out, out
    assert str(tmp_path / "conf.py") in inputs_of(noted_in(tmp_path / "0.reads")).paths["read"]


STARTS = """
import os, subprocess, sys
program = "import os; print('found', [name for name in os.environ if name.startswith('LD_')])"
for _ in range(2):
    print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
with open("/proc/self/environ") as file:
    assert "LD_PRELOAD" in file.read(), "it was there"
os.system("true")
subprocess.run("grep -c vgpu /proc/self/maps", shell=True)
"""


def test_a_program_has_no_virtual_gpu_and_is_told_in_the_report(children, tmp_path):
    step = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\noptimizer = torch.optim.SGD(model.parameters())\n"
    step += "for _ in range(2):\n    model(torch.ones(2, 8).cuda()).sum().backward()\n    optimizer.step()\n"
    (tmp_path / "starts.py").write_text(STARTS + step)
    [(out, run, recording)] = children.run(tmp_path / "starts.py")
    assert run.status == "counted" and out.count("found []") == 2 and "\n0\n" in out, out
    said = [one.text for one in recording.assumed if "starts" in one.text]
    assert [text.split("`")[1] for text in said] == [Path(sys.executable).name, "true", "grep"]
    assert recording.assumed[0].times == 2 and all("without the virtual GPU" in text for text in said)


def test_the_script_sees_the_gpu_that_the_environment_describes(children, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCOLL_VGPU", "name=NVIDIA B200;cc=100;sms=148;memory=192000000000;devices=3;cuda=13")
    (tmp_path / "names.py").write_text("import torch; print(torch.cuda.get_device_name(0), torch.cuda.device_count())")
    [(out, _, _)] = children.run(tmp_path / "names.py")
    assert "NVIDIA B200 3" in out


TRAINS = """
import os, sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters())
assert "CUDA_VISIBLE_DEVICES" not in os.environ
print("args", sys.argv[1:], os.getcwd(), os.environ["LEVEL"], os.environ["WORLD_SIZE"])
while True:
    model(torch.ones(2, 8).cuda()).sum().backward()
    optimizer.step()
"""

LAUNCHES = """
import os, subprocess, sys
if len(sys.argv) == 1:
    variables = os.environ | {"LEVEL": "1", "WORLD_SIZE": "3"}
    START
"""

STARTS_OF_TRAINING = {
    "python": "subprocess.run([sys.executable, '-u', 'train.py', '--x'], cwd='sub', env=variables)",
    "torchrun": "subprocess.Popen(['torchrun', '--nproc_per_node=3', 'train.py', '--x'], cwd='sub', env=variables)",
    "module": "subprocess.run([sys.executable, '-m', 'accelerate.commands.launch', '-m', 'train', '--x'], cwd='sub',"
    " env=variables)",
    "shell": "os.system('cd sub && LEVEL=1 CUDA_VISIBLE_DEVICES=1 deepspeed --num_gpus 3 train.py --x 2>&1 | tee log')",
    "exec": "os.chdir('sub'); os.execve(sys.executable, ['python3', 'train.py', '--x'], variables)",
}


@pytest.mark.parametrize("how", STARTS_OF_TRAINING)
def test_training_that_a_script_starts_runs_as_the_rank(children, tmp_path, how):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(TRAINS)
    (tmp_path / "starts.py").write_text(LAUNCHES.replace("START", STARTS_OF_TRAINING[how]))
    [(out, run, recording)] = children.run(tmp_path / "starts.py", cwd=tmp_path)
    assert run.status == "counted", out
    args = ["--local_rank=0", "--x"] if how == "shell" else ["--x"]
    assert f"args {args} {tmp_path / 'sub'} 1 8" in out
    assert any("train" in one.text and "runs here, as one rank" in one.text for one in recording.assumed)


ACCELERATE = """
import os, subprocess, sys
variables = os.environ | {"LEVEL": "1", "ACCELERATE_USE_FSDP": sys.argv[1], "CUDA_VISIBLE_DEVICES": "0"}
subprocess.run([sys.executable, *sys.argv[2:]], env=variables)
"""


@pytest.mark.parametrize("how", ["accelerate launch", "python -m accelerate.commands.launch"])
def test_the_launcher_of_accelerate_reads_its_configuration_for_the_script(children, tmp_path, how):
    (tmp_path / "accelerate" / "commands").mkdir(parents=True)
    for name, text in {"__init__": "", "commands/__init__": "", "commands/launch": ACCELERATE}.items():
        (tmp_path / "accelerate" / f"{name}.py").write_text(text)
    (tmp_path / "model.py").write_text(TRAINS)
    (tmp_path / "train.py").write_text("import os\nprint('sharded', os.environ['ACCELERATE_USE_FSDP'])\nimport model")
    (tmp_path / "starts.py").write_text(f"import os; os.system('{how} full train.py --x')")
    [(out, run, _)] = children.run(tmp_path / "starts.py", cwd=tmp_path)
    assert run.status == "counted" and "sharded full" in out and "args ['--x']" in out, out


def test_a_script_that_starts_itself_again_runs_as_the_rank(children, tmp_path):
    again = "sys.exit(subprocess.call([sys.executable, __file__, '--x'], env=variables))"
    (tmp_path / "starts.py").write_text(LAUNCHES.replace("START", again) + TRAINS)
    [(out, run, _)] = children.run(tmp_path / "starts.py", cwd=tmp_path)
    assert run.status == "counted" and "args ['--x']" in out, out


def test_a_launcher_in_place_of_the_script_runs_the_script_behind_it(children, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVEL", "1")
    (tmp_path / "train.py").write_text(TRAINS)
    words = ("--nproc_per_node", "8", "train.py", "--strategy", "deepspeed")
    [(out, run, _)] = children.run("torch.distributed.run", *words, is_module=True, cwd=tmp_path)
    assert run.status == "counted" and "args ['--strategy', 'deepspeed']" in out, out


@pytest.mark.parametrize(
    ("launcher", "args"),
    [
        ("deepspeed.launcher.runner", ["--local_rank=0", "--x"]),
        ("torch.distributed.launch", ["--local-rank=0", "--x"]),
        ("torch.distributed.launch --use-env", ["--x"]),
    ],
)
def test_a_launcher_that_passes_the_rank_as_an_argument_does_so(children, tmp_path, monkeypatch, launcher, args):
    monkeypatch.setenv("LEVEL", "1")
    (tmp_path / "train.py").write_text(TRAINS)
    module, *options = launcher.split()
    [(out, run, _)] = children.run(module, *options, "train.py", "--x", is_module=True, cwd=tmp_path)
    assert run.status == "counted" and f"args {args} " in out, out


ELASTIC = """
import torch
from torch.distributed import run
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

torch.multiprocessing.start_processes(lambda rank, text: print(text, rank), ("started",), nprocs=2, start_method="fork")
print("found", elastic_launch(LaunchConfig(1, 1, 2, run_id="x"), lambda text: text)("value"))
run.main(["--nproc_per_node=2", "train.py", "--x"])
"""


def test_the_agent_of_torchrun_inside_of_a_script_runs_one_rank(children, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVEL", "1")
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "starts.py").write_text(ELASTIC)
    [(out, run, _)] = children.run(tmp_path / "starts.py", cwd=tmp_path)
    assert run.status == "counted" and "started 0" in out and "found {0: 'value'}" in out and "args ['--x']" in out, out


def test_another_program_of_python_is_named_if_no_step_was_seen(children, tmp_path):
    (tmp_path / "helper.py").write_text("print('done')")
    (tmp_path / "starts.py").write_text("import subprocess, sys; subprocess.run([sys.executable, 'helper.py'])")
    [(out, run, _)] = children.run(tmp_path / "starts.py", cwd=tmp_path)
    assert "done" in out and "helper.py`: pass that script" in run.message, run.message


RANKS = """
import multiprocessing, os
import torch
import torch.distributed as dist

def helper(number):
    assert not torch.cuda.is_initialized()

def train(local_rank, world_size):
    dist.init_process_group("nccl", rank=local_rank, world_size=world_size)
    torch.cuda.set_device(local_rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(int(os.environ["STEPS"])):
        model(torch.ones(2, 8).cuda()).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    of_ranks = [multiprocessing.Process(target=train, args=(rank, 4)) for rank in range(4)]
    for process in [multiprocessing.Process(target=helper, args=(0,)), *of_ranks]:
        process.start()
    for process in of_ranks:
        process.join()
"""


@pytest.mark.parametrize("rank", [0, 2])
def test_the_process_of_a_rank_runs_here_and_those_of_others_do_not(children, tmp_path, monkeypatch, rank):
    monkeypatch.setenv("STEPS", "2")
    (tmp_path / "ranks.py").write_text(RANKS)
    [(out, run, recording)] = children.run(tmp_path / "ranks.py", ranks=[rank], world_size=4)
    assert run.status == "counted", out
    assert [len(group.ranks) for group in recording.groups.values()] == [4]
    assert "a process of multiprocessing runs here, as one rank" in [one.text for one in recording.assumed]


def test_the_steps_of_a_process_that_has_returned_are_told(children, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPS", "1")
    (tmp_path / "ranks.py").write_text(RANKS)
    [(out, run, _)] = children.run(tmp_path / "ranks.py", world_size=4)
    assert (run.status, run.steps) == ("ended", 1), out
