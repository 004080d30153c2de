"""Losses and gradient norms of plain PyTorch training, for tests/services/trainer/fsdp/training_test.cc.

usage: python tests/parity/trainer_golden.py tests/services/trainer/golden

Writes a Qwen2-shaped model of random weights (config.json, model.safetensors) and golden.json: the
sequences of every step, and the loss and gradient norm that transformers' forward, cross-entropy over
all predicted tokens, torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW give for them in float32.
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

STEPS, SEQUENCES, LONGEST, VOCAB = 20, 6, 14, 67


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = AutoConfig.for_model(
        "qwen2", hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.1)
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
    for _ in range(STEPS):
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
    main(sys.argv[1])
