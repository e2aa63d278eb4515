"""Writes the texts of HLO in this folder, for 8 forced CPU devices: python tests/traces/make_hlo.py FOLDER."""

import gzip
import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("dp", "tp"))
SMALL, LARGE = (4, 256, 1024, 64), (32, 4096, 14336, 65536)
"""Layers, width, hidden width and tokens."""


def array(shape, spec, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, spec))


def step_of(sizes, weights_spec, spec, dtype):
    """A step of training in bf16: a scan over layers of two products."""
    layers, width, hidden, tokens = sizes

    def layer(x, weights):
        first, second = (one.astype(jnp.bfloat16) for one in weights)
        x = x + jax.nn.gelu(x @ first) @ second
        return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, spec)), None

    def step(weights, x):
        def loss(weights):
            y, _ = jax.lax.scan(layer, x, weights)
            return jnp.mean(jnp.square(y.astype(jnp.float32)))

        found, gradients = jax.value_and_grad(loss)(weights)
        return found, jax.tree.map(lambda one, by: one - 0.1 * by, weights, gradients)

    shapes = (layers, width, hidden), (layers, hidden, width)
    weights = [array(shape, one, dtype) for shape, one in zip(shapes, weights_spec, strict=True)]
    return jax.jit(step).lower(weights, array((tokens, width), spec))


def scan_bf16():
    """Tensor parallel by 4, data parallel by 2."""
    return step_of(SMALL, (P(None, None, "tp"), P(None, "tp", None)), P("dp", None), jnp.bfloat16)


def fsdp():
    """Parameters in f32, sharded by 8."""
    both = ("dp", "tp")
    return step_of(LARGE, (P(None, both), P(None, both)), P(both, None), jnp.float32)


def collectives():
    """One of each collective, and a branch."""

    def mixed(x, w):
        y = jax.lax.all_gather(x, "tp", axis=0, tiled=True) @ w
        y = jax.lax.psum_scatter(y, "tp", scatter_dimension=0, tiled=True)
        y = jax.lax.ppermute(y, "dp", [(0, 1), (1, 0)])
        y = jax.lax.all_to_all(y.reshape(4, -1, y.shape[-1]), "tp", 0, 0)
        square = lambda q: q @ q.swapaxes(1, 2)  # noqa: E731
        empty = lambda q: jnp.zeros((q.shape[0], q.shape[1], q.shape[1]), q.dtype)  # noqa: E731
        return jax.lax.pmean(jnp.sum(jax.lax.cond(jnp.sum(y) > 0, square, empty, y)), ("dp", "tp"))

    specs = P(("dp", "tp"), None), P()
    mapped = jax.shard_map(mixed, mesh=MESH, in_specs=specs, out_specs=P(), check_vma=False)
    return jax.jit(mapped).lower(array((256, 512), specs[0]), array((512, 512), specs[1]))


def convolution():
    """A convolution with stride 2 in f32, and the gradient of its kernel."""

    def loss(kernel, x):
        names = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=names).sum()

    x = array((8, 32, 32, 64), P("dp"), jnp.float32)
    return jax.jit(jax.value_and_grad(loss)).lower(jax.ShapeDtypeStruct((3, 3, 64, 128), jnp.float32), x)


if __name__ == "__main__":
    for make in (scan_bf16, fsdp, collectives, convolution):
        text = make().compile().as_text()
        (Path(sys.argv[1]) / f"{make.__name__}.hlo.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
