"""Quantised tensors and the values that transformers computes of them, for quantization_test.

    python tests/parity/quantized_golden.py tests/common/model/golden/quantized

Needs torch, transformers and safetensors. A file has the tensors of a folder, and NAME.expected for each
tensor NAME that it holds quantised, in float32.
"""
import os
import sys

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


class Quantizer:
    """The part of a quantizer that Fp8Dequantize reads."""

    def __init__(self, block):
        self.quantization_config = type("Config", (), {"weight_block_size": block})()


def dequantize_fp8(weight, scale, block):
    values = Fp8Dequantize(Quantizer(block)).convert(
        {"weight$": [weight], "weight_scale_inv": [scale]}, full_layer_name="x.weight")
    (value,) = values.values()
    return (value[0] if isinstance(value, list) else value).float()


def fp8_blocks():
    """Blocks of 4 x 8 in a matrix, in the matrices of two experts, and with every code of the type."""
    block = (4, 8)
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(16, 16)
    powers = torch.arange(120, 126, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    tensors = {
        "codes.weight": codes,
        "codes.weight_scale_inv": torch.rand(4, 2),
        "matrix.weight": torch.randn(12, 24).to(torch.float8_e4m3fn),
        "matrix.weight_scale_inv": (torch.rand(3, 3) * 1e-3).bfloat16(),
        "powers.weight": torch.randn(8, 24).to(torch.float8_e4m3fn),
        "powers.weight_scale_inv": powers.reshape(2, 3),
        "experts.down_proj": torch.randn(2, 8, 16).to(torch.float8_e4m3fn),
        "experts.down_proj_scale_inv": torch.rand(2, 2, 2),
    }
    return with_expected(tensors, block)


def fp8_matrices():
    """One scale for a matrix."""
    tensors = {
        "scalar.weight": torch.randn(5, 9).to(torch.float8_e4m3fn),
        "scalar.weight_scale_inv": torch.tensor(0.37),
        "one.weight": torch.randn(3, 7).to(torch.float8_e4m3fn),
        "one.weight_scale_inv": torch.tensor([[1.7e-4]]),
    }
    return with_expected(tensors, None)


def with_expected(tensors, block):
    for name in [name for name in tensors if not name.endswith("_scale_inv")]:
        # PyTorch's cast of the scales: transformers has no kernels for bfloat16 powers on a CPU.
        scale = tensors[name + "_scale_inv"].float()
        tensors[name + ".expected"] = dequantize_fp8(tensors[name], scale, block)
    return tensors


def mxfp4():
    """All pairs of codes, and scales from the least to the greatest that float32 holds."""
    pairs = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(2, 6, 4, 16)
    scales = torch.randint(110, 140, (2, 6, 4), dtype=torch.uint8)
    scales.view(-1)[:4] = torch.tensor([0, 1, 252, 127], dtype=torch.uint8)
    tensors = {
        "pairs_blocks": pairs,
        "pairs_scales": scales,
        "one_blocks": torch.randint(256, (1, 3, 1, 16), dtype=torch.uint8),
        "one_scales": torch.randint(120, 130, (1, 3, 1), dtype=torch.uint8),
    }
    for name in ("pairs", "one"):
        value = convert_moe_packed_tensors(tensors[name + "_blocks"], tensors[name + "_scales"])
        tensors[name + ".expected"] = value.float().contiguous()
    return tensors


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for make in (fp8_blocks, fp8_matrices, mxfp4):
        torch.manual_seed(7)
        save_file(make(), os.path.join(folder, make.__name__ + ".safetensors"))


if __name__ == "__main__":
    main(sys.argv[1])
