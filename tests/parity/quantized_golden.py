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


def dequantize_fp8(weight, scale):
    # In float32: without a module transformers takes the scale's type. Bytes are powers of two, which its
    # bfloat16 holds exactly.
    scale = scale if scale.dtype == torch.uint8 else scale.float()
    return Fp8Dequantize(None).convert({"weight": weight, "weight_scale_inv": scale})["weight"].float()


def fp8_blocks():
    """Blocks of 4 x 8 in a matrix, in the matrices of two experts, and with every code of the type."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(16, 16)
    powers = torch.arange(120, 126, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    tensors = {
        "codes.weight": codes,
        "codes.weight_scale_inv": torch.rand(4, 2),
        "matrix.weight": torch.randn(12, 24).to(torch.float8_e4m3fn),
        "matrix.weight_scale_inv": (torch.rand(3, 3) * 1e-3).bfloat16(),
        "powers.weight": torch.randn(8, 24).to(torch.float8_e4m3fn),
        "powers.weight_scale_inv": powers.reshape(2, 3),
        "bytes.weight": torch.randn(8, 24).to(torch.float8_e4m3fn),
        "bytes.weight_scale_inv": torch.randint(110, 130, (2, 3), dtype=torch.uint8),
        "experts.down_proj": torch.randn(2, 8, 16).to(torch.float8_e4m3fn),
        "experts.down_proj_scale_inv": torch.rand(2, 2, 2),
    }
    return with_expected(tensors)


def fp8_matrices():
    """One scale for a matrix."""
    tensors = {
        "scalar.weight": torch.randn(5, 9).to(torch.float8_e4m3fn),
        "scalar.weight_scale_inv": torch.tensor(0.37),
        "one.weight": torch.randn(3, 7).to(torch.float8_e4m3fn),
        "one.weight_scale_inv": torch.tensor([[1.7e-4]]),
    }
    return with_expected(tensors)


def with_expected(tensors):
    for name in [name for name in tensors if not name.endswith("_scale_inv")]:
        tensors[name + ".expected"] = dequantize_fp8(tensors[name], tensors[name + "_scale_inv"])
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
