"""Writes tests/services/rollout/engine/reward_models: small reward models of several families as
transformers saves them, and golden.json with the logit that AutoModelForSequenceClassification gives to
each of some sequences in float32, computed as one right-padded batch.

usage: python tests/parity/reward_model_golden.py tests/services/rollout/engine/reward_models
"""
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

torch.set_num_threads(1)
PAD = 0
SIZES = dict(vocab_size=67, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=4, max_position_embeddings=256,
             pad_token_id=PAD, bos_token_id=1, eos_token_id=2, num_labels=1)
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gpt2": dict(vocab_size=67, n_embd=16, n_layer=2, n_head=4, n_positions=256, pad_token_id=PAD,
                 bos_token_id=1, eos_token_id=2, num_labels=1),
}


def sequences(generator):
    """Of 1 to 200 tokens; some end with the padding id, one holds it inside, one is nothing else."""
    out = []
    for length in (1, 2, 5, 17, 40, 64, 120, 200):
        out.append(torch.randint(1, 67, [length], generator=generator).tolist())
    out.append(out[3] + [PAD])
    out.append(out[4] + [PAD] * 5)
    out.append(out[2] + [PAD] + out[3])
    out.append([PAD, PAD, PAD])
    return out


def main(folder):
    golden = {}
    for i, (family, changes) in enumerate(FAMILIES.items()):
        generator = torch.Generator().manual_seed(1000 + i)
        sizes = changes or SIZES
        model = AutoModelForSequenceClassification.from_config(
            AutoConfig.for_model(family, **sizes), dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(1 + 0.1 * noise if "norm" in name or "ln_" in name and "bias" not in name
                             else 0.2 * noise)
            rows = sequences(generator)
            longest = max(map(len, rows))
            ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
            # transformers looks for the last token that is no padding in the ids, not in the mask.
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        model.save_pretrained(folder / family)
        for extra in (folder / family).iterdir():
            if extra.name not in ("config.json", "model.safetensors"):
                extra.unlink()
        golden[family] = {"architecture": type(model).__name__,
                          "sequences": rows, "logits": logits[:, 0].tolist()}
    (folder / "golden.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
