"""What textbooks say a step computes, sends and holds: the formulas with which recordings are compared.

A product of (m, k) and (k, n) is 2 m n k FLOPs. A layer whose weights have P elements in products computes 2 P FLOPs
for a token in its forward pass, and twice that in its backward pass: for the input's gradient and for the weight's.

Bytes of collectives are those of nccl-tests: for all_gather and reduce_scatter those of all ranks together.

Memory is a sum of what the formulas name: weights and their optimizer state, activations that wait for the backward
pass, logits. Workspaces are not in it: `peak` of a row is the interval in which the record has to be.
"""

from dataclasses import dataclass

BF16, FP32 = 2, 4  # bytes
MIB = 2**20


@dataclass(frozen=True)
class Transformer:
    """The model of `scripts/model.py`.

    Attributes:
        tokens: tokens of a micro-batch on one rank.
        width: elements of a token's activation.
        layers: blocks.
        vocabulary: rows of the embedding, and of the head.
    """

    tokens: int = 2048
    width: int = 512
    layers: int = 4
    vocabulary: int = 4096

    @property
    def block_products(self):
        """Weights of a block in products: q, k, v, out, and an MLP of four times the width."""
        return 12 * self.width**2

    @property
    def block(self):
        """Parameters of a block, two norms included."""
        return self.block_products + 2 * self.width

    @property
    def head(self):
        """Parameters of the head, and of the embedding."""
        return self.vocabulary * self.width

    @property
    def root(self):
        """Parameters outside of blocks: embedding, norm, head."""
        return 2 * self.head + self.width

    @property
    def parameters(self):
        """All parameters."""
        return self.layers * self.block + self.root

    @property
    def tensors(self):
        """Tensors of parameters: eight of each block, and three outside."""
        return 8 * self.layers + 3

    @property
    def flops(self):
        """FLOPs of all products of forward and backward pass."""
        return 6 * self.tokens * (self.layers * self.block_products + self.head)

    @property
    def block_activations(self):
        """Bytes that one block keeps for its backward pass in bf16, without the norms' statistics.

        Widths of a token: input, norm, q, k, v, attention, sum, norm are 1 each; the MLP before and after GELU 4.
        """
        return 16 * self.tokens * self.width * BF16

    @property
    def loss_bytes(self):
        """Bytes at the start of the backward pass: logits in bf16, log-probabilities and two gradients in fp32."""
        return self.tokens * self.vocabulary * (BF16 + 3 * FP32)

    def sharded_states(self, ranks):
        """Bytes of weights and both moments in fp32, on one of some ranks that share them."""
        return 3 * FP32 * self.parameters // ranks

    def peak(self, standing, kept_blocks=None):
        """Bytes at the start of the backward pass.

        Args:
            standing: bytes that are there all the time.
            kept_blocks: blocks whose activations are kept; all if left out.
        """
        kept = self.layers if kept_blocks is None else kept_blocks
        return standing + kept * self.block_activations + self.loss_bytes


def around(nbytes, below=0.95, above=1.10):
    """Returns the interval in which a peak has to be that a formula gives but for workspaces and rounding."""
    return below * nbytes, above * nbytes


def attention_products(sequence, width, sequences):
    """FLOPs of forward and backward pass of attention that is made of products, all heads together."""
    return 3 * 4 * sequences * sequence**2 * width
