"""Losses and gradient norms of plain PyTorch training, for tests/services/trainer/fsdp/training_test.cc.

usage: python tests/parity/trainer_golden.py tests/services/trainer/golden
       python tests/parity/trainer_golden.py tests/services/trainer/golden_linear linear

Writes a Qwen2-shaped model of random weights, or one of Qwen3-Next's shape: linear and full attention,
experts with a shared one (config.json, model.safetensors) and golden.json: the
sequences of every step, and the loss and gradient norm that transformers' forward, cross-entropy over
all predicted tokens, torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW give for them in float32.
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SEQUENCES, LONGEST, VOCAB = 6, 14, 67
SMALL = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=64,
             tie_word_embeddings=True, initializer_range=0.1)
LINEAR, FULL = "linear_attention", "full_attention"
# By name: the type of the model, its configuration, and the number of steps.
MODELS = {
    "dense": ("qwen2", SMALL, 20),
    "linear": ("qwen3_next", dict(
        SMALL, head_dim=8, layer_types=[LINEAR, FULL, LINEAR], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=10,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=12), 4),
}


def main(folder, name="dense"):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model_type, keys, num_steps = MODELS[name]
    config = AutoConfig.for_model(model_type, **keys)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, key, 0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    options = dict(lr=3e-3, betas=(0.9, 0.99), weight_decay=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    generator = torch.Generator().manual_seed(5)
    steps = []
    for _ in range(num_steps):
        lengths = torch.randint(2, LONGEST + 1, [SEQUENCES], generator=generator).tolist()
        # Not the padding id 0: transformers gives its embedding no gradient.
        sequences = [torch.randint(1, VOCAB, [n], generator=generator) for n in lengths]
        predicted = sum(n - 1 for n in lengths)
        loss = sum(
            torch.nn.functional.cross_entropy(model(s[None, :-1]).logits[0], s[1:], reduction="sum")
            for s in sequences) / predicted
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"sequences": [s.tolist() for s in sequences], "loss": loss.item(),
                      "grad_norm": norm.item()})
    golden = {"lr": options["lr"], "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.05, "grad_clip": 1.0,
              "steps": steps}
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(golden, file)
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors", "golden.json"):
            os.remove(os.path.join(folder, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
