"""torchtitan's Llama 3 8B as in its benchmark of December 2024; run by `dryrun_judge.py`."""

from triton.runtime.autotuner import Autotuner

plain_init = Autotuner.__init__


def init(self, fn, arg_names, configs, key, *rest, **named):
    """torchao 0.18 names a key of autotuning that is no argument of its kernel, which Triton 3.9 refuses."""
    plain_init(self, fn, arg_names, configs, [name for name in key if name in arg_names], *rest, **named)


Autotuner.__init__ = init

import torchtitan.models.llama3.config_registry as registry  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.config import CompileConfig  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402


def of_2024():
    """Two sequences of 8,192 on each GPU, operators selected for recomputation, loss of all logits at once."""
    config = registry.llama3_8b()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=registry.decoder_vocab_size(config.model_spec))
    config.training.local_batch_size = 2
    config.training.disable_cuda_graphs = True
    return config


def compiled():
    config = of_2024()
    config.compile = CompileConfig(enable=True, components=["model"])
    return config


def float8():
    config = compiled()
    converter = registry.Float8LinearConverter.Config(filter_fqns=["lm_head", "output"], model_compile_enabled=True)
    config.model_spec = model_registry("8B", converters=[converter])
    return config


registry.llama3_8b_2024, registry.llama3_8b_2024_compiled, registry.llama3_8b_2024_float8 = of_2024, compiled, float8

if __name__ == "__main__":
    from torchtitan.train import main

    main()
