"""The first call of its kind builds and proves: nobody else stands still meanwhile, and it is done once."""

import functools

import processes

PRELUDE = """
import faulthandler, os, signal, threading, time
faulthandler.dump_traceback_later(90, exit=True)
import numpy as np
import nvcoll

class Ticker:
    def __init__(self):
        self.ticks = 0
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self):
        while True:
            time.sleep(0.001)
            self.ticks += 1

    def during(self, call):
        before = self.ticks
        call()
        return self.ticks - before
"""

run_script = functools.partial(processes.run_script, PRELUDE)


def test_other_threads_go_on_while_a_registered_algorithm_is_proved():
    # Many times as many ticks as the calls give the interpreter away for other reasons.
    run_script(
        """
        node, ticker = nvcoll.Node(320, workers=1), Ticker()
        x = np.ones((320, 8), dtype="f4")
        ticks = ticker.during(lambda: node.all_reduce(x, algorithm="ring"))
        assert ticks >= 20, ticks
        ticks = ticker.during(lambda: node.run(lambda comm: comm.all_reduce(np.ones(2, dtype="f4"), algorithm="ring")))
        assert (x == 320).all()
        """
    )


def test_other_threads_go_on_while_a_schedule_is_built_lowered_and_proved():
    run_script(
        """
        ticker, made = Ticker(), []
        ticks = ticker.during(lambda: made.append(nvcoll.schedule("all_reduce", "ring", world_size=320)))
        assert ticks >= 5, ticks
        x = np.ones((320, 8), dtype="f4")
        ticks = ticker.during(lambda: nvcoll.Node(320, workers=1).all_reduce(x, algorithm=made[0]))
        assert ticks >= 20, ticks
        """
    )


def test_a_child_forked_while_another_thread_proves_can_prove_the_same():
    run_script(
        """
        def call():
            x = np.ones((160, 8), dtype="f4")
            node.all_reduce(x, algorithm="ring")
            assert (x == 160).all()

        for _ in range(3):
            node = nvcoll.Node(160, workers=1)
            thread = threading.Thread(target=call)
            thread.start()
            time.sleep(0.02)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                node = nvcoll.Node(160, workers=1)
                call()
                os._exit(0)
            thread.join()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_code_that_runs_in_a_refutation_may_ask_for_the_same_proof():
    run_script(
        """
        @nvcoll.algorithm("all_reduce")
        def forgetful(b):
            n = b.world_size
            b.fold([b.input(r, 0) for r in range(n - 1)], into=[b.output(r, 0) for r in range(n)])

        node, schedule, depth = nvcoll.Node(3), forgetful.schedule(3), 0

        def call():
            try:
                node.all_reduce(np.ones((3, 4), dtype="f4"), algorithm=schedule)
                raise AssertionError("accepted")
            except nvcoll.Refuted:
                pass

        def when_told(error, name, value):
            global depth
            depth += 1
            if depth == 1:
                call()
            super(nvcoll.Refuted, error).__setattr__(name, value)

        nvcoll.Refuted.__setattr__ = when_told
        call()
        assert depth == 4, depth
        """
    )
