"""Losses and gradient norms of plain PyTorch training on pictures, for
tests/services/trainer/fsdp/image_training_test.cc.

usage: vision_training_golden.py FOLDER OUTPUT [CASE...]    (needs torch, torchvision, transformers, Pillow)

FOLDER is tests/common/model/vision_golden, which vision_golden.py wrote. Trains each of its models on its rows,
all of them in every step, in float32: the mean cross-entropy over all predicted tokens,
torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW. OUTPUT gets, for each model, "frozen" and "trained" (the
vision tower, with a learning rate of its own), each with the losses and gradient norms of the steps. With
cases, OUTPUT keeps what it has of other models.
"""
import json
import os
import sys

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from vision_golden import extra_inputs, is_of_tower, load_processor, process

STEPS, LR, VISION_LR, BETAS, WEIGHT_DECAY, CLIP = 4, 2e-3, 5e-4, (0.9, 0.99), 0.05, 1.0


def inputs(model, processor, folder, row):
    tokens = torch.tensor([row["ids"]])
    pictures = [Image.open(os.path.join(folder, name)) for name in row["images"]]
    if not pictures:
        return dict(input_ids=tokens)
    return dict(extra_inputs(model, tokens, process(model, processor, pictures)), input_ids=tokens)


def train(folder, rows, trains_tower):
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    processor = load_processor(model, folder)
    tower = [p for name, p in model.named_parameters() if is_of_tower(name)]
    text = [p for name, p in model.named_parameters() if not is_of_tower(name)]
    for parameter in tower:
        parameter.requires_grad_(trains_tower)
    groups = [dict(params=text, lr=LR)] + ([dict(params=tower, lr=VISION_LR)] if trains_tower else [])
    optimizer = torch.optim.AdamW(groups, betas=BETAS, weight_decay=WEIGHT_DECAY)
    predicted = sum(len(row["ids"]) - 1 for row in rows)
    losses, norms = [], []
    for _ in range(STEPS):
        loss = 0
        for row in rows:
            model.model.rope_deltas = None
            given = inputs(model, processor, folder, row)
            logits = model(use_cache=False, **given).logits[0, :-1]
            loss = loss + torch.nn.functional.cross_entropy(logits, given["input_ids"][0, 1:], reduction="sum")
        loss = loss / predicted
        loss.backward()
        trained = [p for group in groups for p in group["params"]]
        norms.append(torch.nn.utils.clip_grad_norm_(trained, CLIP).item())
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return dict(losses=losses, grad_norms=norms)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    golden = dict(lr=LR, vision_lr=VISION_LR, beta1=BETAS[0], beta2=BETAS[1], weight_decay=WEIGHT_DECAY,
                  grad_clip=CLIP, models={})
    if sys.argv[3:]:
        with open(sys.argv[2]) as file:
            golden["models"] = json.load(file)["models"]
    for case in sys.argv[3:] or sorted(os.listdir(sys.argv[1])):
        folder = os.path.join(sys.argv[1], case)
        with open(os.path.join(folder, "golden.json")) as file:
            rows = json.load(file)["rows"]
        golden["models"][case] = dict(frozen=train(folder, rows, False), trained=train(folder, rows, True))
    with open(sys.argv[2], "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
