"""Golden files for tests/common/model: small random checkpoints with what transformers computes on them.

usage: model_golden.py DIR [CASE...]        (needs torch, transformers, safetensors)

Writes DIR/CASE/{config.json, model.safetensors, golden.json}. golden.json holds packed sequences of token
ids, and for each its log-probs log p(ids[t+1] | ids[..t]) and entropies in float32, computed sequence by
sequence; and gradients of  mean(logprobs) + 0.1 * mean(entropy)  over all sequences' predictions, by the
names of the checkpoint, as [sum, sum of squares, first values].
"""
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

LENGTHS = [1, 2, 9, 23, 17]
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=131, max_position_embeddings=128, bos_token_id=1,
             eos_token_id=2)
CASES = {
    # head_dim is neither hidden / heads nor a power of two.
    "llama": ("llama", dict(SMALL, head_dim=10, tie_word_embeddings=False)),
    "llama3-rope-tied": ("llama", dict(
        SMALL, head_dim=16, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rope_theta=10000.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16))),
    "llama-linear-rope": ("llama", dict(SMALL, head_dim=6, num_key_value_heads=4, vocab_size=97,
                                        rope_scaling=dict(rope_type="linear", factor=3.0))),
    "qwen2": ("qwen2", dict(SMALL, hidden_size=28, num_attention_heads=7, num_key_value_heads=1,
                            tie_word_embeddings=False, rope_theta=1000000.0)),
    "qwen2-tied": ("qwen2", dict(SMALL, tie_word_embeddings=True)),
    # The second layer sees 8 tokens; most sequences are longer.
    "qwen2-window": ("qwen2", dict(SMALL, tie_word_embeddings=False, use_sliding_window=True,
                                   sliding_window=8, max_window_layers=1)),
    "qwen3": ("qwen3", dict(SMALL, head_dim=16, tie_word_embeddings=False)),
    "qwen3-tied": ("qwen3", dict(SMALL, head_dim=12, num_key_value_heads=1, tie_word_embeddings=True,
                                 attention_bias=True)),
    # The second layer is dense. Some experts get few tokens or none.
    "qwen3-moe": ("qwen3_moe", dict(SMALL, head_dim=16, num_hidden_layers=3, mlp_only_layers=[1],
                                    num_experts=12, num_experts_per_tok=3, moe_intermediate_size=10,
                                    norm_topk_prob=True)),
    # The first layer is dense; weights are as the softmax gives them; a shared expert.
    "qwen2-moe": ("qwen2_moe", dict(SMALL, decoder_sparse_step=2, num_experts=5,
                                    num_experts_per_tok=2, moe_intermediate_size=14,
                                    shared_expert_intermediate_size=20)),
    # Both layers see 8 tokens.
    "mixtral": ("mixtral", dict(SMALL, sliding_window=8, num_local_experts=4,
                                num_experts_per_tok=2)),
}


def randomize(model):
    """Larger weights than the initial ones, and biases and norms that are not all alike."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
        else:
            torch.nn.init.normal_(parameter, 0.0, 0.25)


def gradients_of(model):
    """Gradients by the folder's names: saved in place of the weights, because transformers holds
    a layer's experts as one tensor."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None
                            else parameter.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(os.path.join(folder, "model.safetensors"))
    return {
        name: [g.double().sum().item(), g.double().square().sum().item(), g.flatten()[:8].tolist()]
        for name, g in saved.items()
    }


def main(out, cases):
    for case in cases or CASES:
        family, keys = CASES[case]
        torch.manual_seed(11)
        config = AutoConfig.for_model(family, **keys)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                 attn_implementation="eager",
                                                 experts_implementation="eager")
        randomize(model)
        folder = os.path.join(out, case)
        os.makedirs(folder, exist_ok=True)
        model.save_pretrained(folder)
        generation = os.path.join(folder, "generation_config.json")
        if os.path.exists(generation):
            os.remove(generation)

        sequences = [torch.randint(config.vocab_size, (n,)).tolist() for n in LENGTHS]
        logprobs, entropies = [], []
        for ids in sequences:
            logits = model(torch.tensor([ids])).logits[0, :-1].float()
            log_p = torch.log_softmax(logits, -1)
            logprobs.append(log_p.gather(1, torch.tensor(ids[1:], dtype=torch.int64)[:, None])[:, 0])
            entropies.append(-(log_p.exp() * log_p).sum(-1))
        (torch.cat(logprobs).mean() + 0.1 * torch.cat(entropies).mean()).backward()
        golden = dict(sequences=sequences, logprobs=[x.tolist() for x in logprobs],
                      entropies=[x.tolist() for x in entropies], gradients=gradients_of(model))
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump(golden, file)
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
