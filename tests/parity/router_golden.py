"""Training with the routers' losses, for tests/services/trainer/fsdp/router_losses_test.cc.

usage: python tests/parity/router_golden.py tests/services/trainer/golden_router

Writes a Qwen3-MoE of random weights (config.json, model.safetensors) and golden.json: for each of some
factors of the losses and numbers of micro-batches, the loss, its parts and the gradient norm of four
steps, in float32, with transformers' forward and load_balancing_loss_func (output_router_logits=True;
padding left out by the attention mask), the mean of the squared log-sum-exp of all router logits, and
torch.optim.AdamW. A micro-batch counts by its share of the tokens.
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

STEPS, SEQUENCES, LONGEST, VOCAB = 4, 6, 14, 67
OPTIONS = dict(lr=3e-3, betas=(0.9, 0.99), weight_decay=0.05)
CASES = [dict(balance=0.5, z=0.0, micro_batches=1), dict(balance=0.5, z=0.02, micro_batches=1),
         dict(balance=0.5, z=0.02, micro_batches=2)]


def losses(model, sequences):
    """Sum of cross-entropies, balance loss, z loss and number of tokens of a padded batch."""
    longest = max(len(s) for s in sequences) - 1
    ids = torch.zeros([len(sequences), longest], dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, s in enumerate(sequences):
        ids[row, :len(s) - 1] = s[:-1]
        mask[row, :len(s) - 1] = 1
    out = model(input_ids=ids, attention_mask=mask, output_router_logits=True)
    cross_entropy = sum(
        torch.nn.functional.cross_entropy(out.logits[row, :len(s) - 1], s[1:], reduction="sum")
        for row, s in enumerate(sequences))
    kept = mask.flatten().bool()
    z = torch.cat([torch.logsumexp(layer[kept], -1).square() for layer in out.router_logits]).mean()
    return cross_entropy, out.aux_loss, z, int(mask.sum())


def train(folder, balance, z, micro_batches):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    generator = torch.Generator().manual_seed(5)
    steps = []
    for _ in range(STEPS):
        lengths = torch.randint(2, LONGEST + 1, [SEQUENCES], generator=generator).tolist()
        # Not the padding id 0: transformers gives its embedding no gradient.
        sequences = [torch.randint(1, VOCAB, [n], generator=generator) for n in lengths]
        parts = [losses(model, sequences[m::micro_batches]) for m in range(micro_batches)]
        tokens = sum(part[3] for part in parts)
        balance_loss = sum(part[1] * part[3] / tokens for part in parts)
        z_loss = sum(part[2] * part[3] / tokens for part in parts)
        loss = sum(part[0] for part in parts) / tokens + balance * balance_loss + z * z_loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps.append({"sequences": [s.tolist() for s in sequences], "loss": loss.item(),
                      "balance": balance_loss.item(), "z": z_loss.item(), "grad_norm": norm.item()})
    return {"balance": balance, "z": z, "micro_batches": micro_batches, "steps": steps}


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = AutoConfig.for_model(
        "qwen3_moe", hidden_size=24, intermediate_size=40, moe_intermediate_size=10, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=6, num_experts_per_tok=2,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1], vocab_size=VOCAB,
        max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.2)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, key, 0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    golden = {"lr": OPTIONS["lr"], "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.05, "grad_clip": 1.0,
              "cases": [train(folder, **case) for case in CASES]}
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(golden, file)
    for name in os.listdir(folder):
        if name not in ("config.json", "model.safetensors", "golden.json"):
            os.remove(os.path.join(folder, name))


if __name__ == "__main__":
    main(sys.argv[1])
