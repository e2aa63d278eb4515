"""Threads of a script in the child of a dry run: their work counts as that of the main thread."""

from dataclasses import fields, replace

import pytest
from dryrun_children import PATIENT, children, counted

__all__ = ["children", "counted"]

pytestmark = PATIENT


def test_a_step_in_a_thread_is_recorded_as_one_in_the_main_thread(counted):
    main, thread = counted("threaded.py"), counted("threaded.py", "thread")
    assert (main.records == thread.records).all() and main.host_ops > 50
    for name in {each.name for each in fields(main)} - {"records", "memory"}:
        assert getattr(main, name) == getattr(thread, name), name
    assert replace(main.memory, stack=()) == replace(thread.memory, stack=())
    assert main.memory.stack[:2] == thread.memory.stack, "then who called it"


VALUES = """
import _thread, threading, torch
from concurrent.futures import ThreadPoolExecutor

def masked():
    mask = torch.arange(1024, device="cuda") < 700
    return torch.arange(1024, device="cuda")[mask].sum().item()

class Own(threading.Thread):
    def run(self):
        self.found = masked()

own, found, done = Own(), [], threading.Event()
own.start()
own.join()
_thread.start_new_thread(lambda: (found.append(masked()), done.set()), ())
done.wait()
with ThreadPoolExecutor(4) as pool:
    found += pool.map(lambda _: masked(), range(8))
box = []
maker = threading.Thread(target=lambda: box.append(torch.arange(10, device="cuda") % 2 == 0))
maker.start()
maker.join()
print("found", {own.found, *found}, torch.arange(10, device="cuda")[box[0]].tolist())
"""


def test_values_of_threads_are_computed(children, tmp_path):
    (tmp_path / "values.py").write_text(VALUES)
    [(out, _, _)] = children.run(tmp_path / "values.py")
    assert f"found {{{sum(range(700))}}} [0, 2, 4, 6, 8]" in out


REFUSED = """
import threading, torch
def work():
    x = torch.randn(1000, 1000, device="cuda")
    print(x[x > 0].shape)
thread = threading.Thread(target=work)
thread.start()
threading.Event().wait()
"""


def test_what_is_refused_in_a_thread_ends_the_script(children, tmp_path):
    (tmp_path / "asks.py").write_text(REFUSED)
    [(out, run, _)] = children.run(tmp_path / "asks.py")
    assert (run.status, run.line) == ("refused", "asks.py:5 work"), out
    assert "depends on the values of a tensor (1000, 1000) bool" in run.message


@pytest.mark.parametrize("how", ["threading.Thread(target=work).start()", "_thread.start_new_thread(work, ())"])
def test_an_exception_of_a_thread_is_that_of_python(children, tmp_path, how):
    text = f"import _thread, threading, time\ndef work():\n    raise ValueError('a thread')\n{how}\ntime.sleep(0.5)\n"
    (tmp_path / "raises.py").write_text(text)
    [(out, run, _)] = children.run(tmp_path / "raises.py")
    assert run.status == "ended" and "ValueError: a thread" in out
