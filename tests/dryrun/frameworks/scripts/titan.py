"""torchtitan's own trainer: its arguments are those of `python -m torchtitan.train`.

torchao 0.18 names a key of autotuning that is no argument of its kernel, and Triton 3.9 refuses it on any GPU.
"""

from triton.runtime.autotuner import Autotuner

plain_init = Autotuner.__init__


def init(self, fn, arg_names, configs, key, *rest, **named):
    plain_init(self, fn, arg_names, configs, [name for name in key if name in arg_names], *rest, **named)


Autotuner.__init__ = init

if __name__ == "__main__":
    from torchtitan.train import main

    main()
