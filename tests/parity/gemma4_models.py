"""Random models of Gemma 4's language model in several shapes, for compare_with_transformers.py:

    python tests/parity/gemma4_models.py DIR [--seed N]        (needs torch and transformers)
    python tests/parity/compare_with_transformers.py DIR/* --smooth

  keys       values are the projection of keys in full layers, which have key-value heads and a head size of
             their own; logits have a softcap
  experts    experts beside dense layers
  carried    layers that share keys and values, with a wider feed-forward, and inputs of each layer
  all        all of this

The seed chooses weights and sizes."""

import argparse
import os
import random

import torch
from transformers import AutoModelForCausalLM, Gemma4TextConfig

SLIDING, FULL = "sliding_attention", "full_attention"


def sizes(choose):
    heads = choose.choice([4, 6, 8])
    return dict(
        vocab_size=choose.choice([96, 131]), hidden_size=choose.choice([32, 48]),
        intermediate_size=choose.choice([48, 56]), num_attention_heads=heads,
        num_key_value_heads=2, head_dim=choose.choice([8, 12, 16]),
        global_head_dim=choose.choice([16, 24, 32]), sliding_window=choose.choice([5, 8, 16]),
        max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        hidden_size_per_layer_input=0)


def shapes(choose):
    keys = dict(attention_k_eq_v=True, num_global_key_value_heads=choose.choice([1, 2]),
                final_logit_softcapping=choose.choice([5.0, 30.0]))
    experts = dict(enable_moe_block=True, num_experts=choose.choice([4, 6]), top_k_experts=2,
                   moe_intermediate_size=choose.choice([12, 16]))
    carried = dict(num_hidden_layers=6, layer_types=[SLIDING, FULL] * 3, num_kv_shared_layers=choose.choice([2, 3]),
                   use_double_wide_mlp=True, hidden_size_per_layer_input=choose.choice([6, 8]))
    few = dict(num_hidden_layers=3, layer_types=[SLIDING, FULL, FULL])
    return {
        "keys": dict(few, **keys),
        "experts": dict(few, num_hidden_layers=2, layer_types=[SLIDING, FULL], **experts),
        "carried": carried,
        "all": dict(keys, **experts, **carried),
    }


def randomize(model, seed):
    """Norms and factors that are not all alike, matrices by 1 / sqrt(fan in), logits a nat or two wide."""
    generator = torch.Generator().manual_seed(seed)
    scalars = [(name, tensor) for name, tensor in model.named_buffers() if name.endswith("layer_scalar")]
    with torch.no_grad():
        for name, tensor in sorted(list(model.named_parameters()) + scalars):
            normal = torch.randn(tensor.shape, generator=generator)
            if name.endswith("layer_scalar"):
                tensor.copy_(0.8 + 0.1 * normal)
            # Scores have no other scale; and what inputs of layers add may be a small vector, made large.
            elif name.endswith(("q_norm.weight", "k_norm.weight", "post_per_layer_input_norm.weight")):
                tensor.copy_(0.4 + 0.1 * normal)
            elif (tensor == 1).all():
                tensor.copy_(1.0 + 0.2 * normal)
            else:
                tensor.copy_(normal / tensor.shape[-1] ** 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--seed", type=int, default=29)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in shapes(random.Random(0)):
        choose = random.Random(arguments.seed)
        keys = {**sizes(choose), **shapes(choose)[name]}
        config = Gemma4TextConfig(**keys, vocab_size_per_layer_input=keys["vocab_size"])
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        randomize(model, arguments.seed)
        model.save_pretrained(os.path.join(arguments.folder, name))


if __name__ == "__main__":
    main()
