"""Writes inverse frequencies and attention factors of rotary embeddings as transformers computes them.

    python tests/parity/rotary_frequencies.py tests/common/model/golden/rotary_frequencies.json

Needs torch and transformers. Each case has config.json's keys in the older form and as transformers
writes them, and the values for sequences of some lengths.
"""

import json
import sys

import torch
from transformers import Gemma3TextConfig, LlamaConfig, Olmo3Config, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SIZES = dict(hidden_size=64, num_attention_heads=2, num_hidden_layers=4, vocab_size=32)
LONG = dict(short_factor=[1.0 + 0.05 * i for i in range(12)], long_factor=[1.0 + 0.5 * i for i in range(12)])


def llama(**keys):
    return LlamaConfig, dict(max_position_embeddings=256, **keys), ""


def case(name, config_class, keys, layer_type, lengths=(1,)):
    config = config_class(**SIZES, **json.loads(json.dumps(keys)))
    parameters = config.rope_parameters[layer_type] if layer_type else config.rope_parameters
    rope_type = parameters["rope_type"]
    head_dim = getattr(config, "head_dim", None) or 32
    found = []
    for length in lengths:
        if rope_type == "default":
            dim = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
            exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
            inverse, factor = 1.0 / (parameters["rope_theta"] ** exponents), 1.0
        else:
            kwargs = dict(layer_type=layer_type) if layer_type else {}
            inverse, factor = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length, **kwargs)
        found.append(dict(length=length, inverse=inverse.tolist(), attention_factor=float(factor)))
    newer = dict(max_position_embeddings=config.max_position_embeddings, rope_parameters=config.rope_parameters)
    return dict(name=name, layer_type=layer_type, head_dim=head_dim, older=keys, newer=newer, values=found)


def main():
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
    phi3 = dict(max_position_embeddings=256, original_max_position_embeddings=64, partial_rotary_factor=0.75)
    gemma3 = dict(max_position_embeddings=256, head_dim=32, rope_theta=1e6, rope_local_base_freq=5000.0)
    olmo3 = dict(max_position_embeddings=256, rope_theta=5e5, rope_scaling=yarn)
    cases = [
        case("default", *llama(rope_theta=50000.0)),
        case("partial", *llama(rope_theta=10000.0, partial_rotary_factor=0.5)),
        case("linear", *llama(rope_theta=10000.0, rope_scaling=dict(type="linear", factor=8.0))),
        case("proportional", *llama(rope_theta=10000.0, rope_scaling=dict(
            rope_type="proportional", partial_rotary_factor=0.3, factor=2.0))),
        case("dynamic", *llama(rope_theta=10000.0, rope_scaling=dict(type="dynamic", factor=2.0)),
             lengths=(100, 256, 257, 700)),
        case("llama3", *llama(rope_theta=500000.0, rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64))),
        case("yarn", *llama(rope_theta=10000.0, rope_scaling=yarn)),
        case("yarn without truncation", *llama(rope_theta=150000.0, rope_scaling=dict(yarn, truncate=False))),
        case("yarn with mscale", *llama(rope_theta=10000.0, rope_scaling=dict(
            yarn, beta_fast=16.0, beta_slow=2.0, mscale=1.2, mscale_all_dim=0.7))),
        case("yarn with attention_factor", *llama(rope_theta=10000.0, rope_scaling=dict(yarn, attention_factor=1.1))),
        case("longrope", Phi3Config, dict(phi3, rope_theta=10000.0, rope_scaling=dict(type="longrope", **LONG)), "",
             lengths=(64, 65, 200)),
        case("gemma3 full", Gemma3TextConfig, dict(gemma3, rope_scaling=dict(rope_type="linear", factor=8.0)),
             "full_attention"),
        case("gemma3 sliding", Gemma3TextConfig, dict(gemma3, rope_scaling=dict(rope_type="linear", factor=8.0)),
             "sliding_attention"),
        case("olmo3 full", Olmo3Config, olmo3, "full_attention"),
    ]
    with open(sys.argv[1], "w") as out:
        json.dump(cases, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
