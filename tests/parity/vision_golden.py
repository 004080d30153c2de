"""Golden files for tests/common/model/vision_test.cc: small random models that see images, the images, and
what transformers computes on them.

usage: vision_golden.py DIR [CASE...]        (needs torch, torchvision, transformers, safetensors, Pillow)

Writes DIR/CASE/{config.json, preprocessor_config.json, model.safetensors, *.png, golden.json}. Weights are
rounded to bfloat16, in which they are saved, before anything is computed in float32. golden.json has
"rows", each with
  ids, images    token ids with a placeholder for each merged patch, and the images in the order of their runs
  logprobs       log p(ids[t+1] | ids[..t])
  positions      [3][tokens]: time, height, width
  next_position  of the token that would follow
  grad_norms     of the mean of logprobs: {"tower": ..., "text": ...}
"""
import json
import math
import os
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

PATCH = 4
TEXT = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=41, max_position_embeddings=256, bos_token_id=1,
            eos_token_id=2, pad_token_id=0,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[1, 1, 2]))
IDS = dict(image_token_id=36, video_token_id=37, vision_start_token_id=38, vision_end_token_id=39)
# Of Qwen3-VL: heads that are not hidden / num_heads wide, and sections that take turns.
TEXT3 = dict(TEXT, num_hidden_layers=3, head_dim=12,
             rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[3, 2, 1],
                                  mrope_interleaved=True))
TOWER3 = dict(depth=3, hidden_size=16, out_hidden_size=16, intermediate_size=20, num_heads=2,
              num_position_embeddings=25, deepstack_visual_indexes=[0, 2], patch_size=PATCH)
# Of Qwen3.5: linear attention, and full attention in the last layer, where a part of a head rotates. The
# epsilon keeps the norm behind linear attention, whose results are small, from making gradients huge.
TEXT35 = dict(TEXT, num_hidden_layers=3, head_dim=12, rms_norm_eps=1e-2,
              layer_types=["linear_attention", "linear_attention", "full_attention"],
              linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4,
              linear_value_head_dim=6, linear_conv_kernel_dim=4,
              rope_parameters=dict(rope_type="default", rope_theta=10000000.0,
                                   partial_rotary_factor=0.7, mrope_section=[2, 1, 1],
                                   mrope_interleaved=True))
TOWER35 = {key: value for key, value in TOWER3.items() if key != "deepstack_visual_indexes"}
EXPERTS = dict(experts_implementation="eager")
# A model type, its tower and its language model.
CASES = {
    "qwen2-vl": ("qwen2_vl", dict(depth=2, embed_dim=16, hidden_size=16, num_heads=2, mlp_ratio=2,
                                  patch_size=PATCH), TEXT),
    # Windows of 2 x 2 merged patches; the second of three layers sees the whole image.
    "qwen2-5-vl": ("qwen2_5_vl", dict(depth=3, hidden_size=16, out_hidden_size=16,
                                      intermediate_size=20, num_heads=2, window_size=16,
                                      fullatt_block_indexes=[1], patch_size=PATCH), TEXT),
    "qwen3-vl": ("qwen3_vl", TOWER3, TEXT3),
    # The tower adds to every layer of the language model; the second is dense.
    "qwen3-vl-moe": ("qwen3_vl_moe", dict(TOWER3, deepstack_visual_indexes=[0, 1]),
                     dict(TEXT3, num_hidden_layers=2, num_experts=4, num_experts_per_tok=2,
                          moe_intermediate_size=6, mlp_only_layers=[1])),
    "qwen3-5": ("qwen3_5", TOWER35, TEXT35),
    "qwen3-5-moe": ("qwen3_5_moe", TOWER35,
                    dict(TEXT35, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
                         shared_expert_intermediate_size=10)),
}
# Height, width, mode. The processor shrinks the first, rounds the second, and enlarges the third.
IMAGES = {"a.png": (45, 61, "RGB"), "b.png": (23, 30, "L"), "c.png": (9, 11, "RGB")}
# Numbers are tokens of text. Images stand first, last, alone and several times.
ROWS = [[5, "a.png", 9], [3, "b.png", 4, "a.png", 6], [12], ["c.png", "b.png", 1, "c.png"]]


def picture(height, width, mode, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    colors = [127 + 120 * np.sin(x / 5 + y / 9 + seed), x * 255 / width, 255 - y * 255 / height]
    noisy = np.stack(colors, -1) + rng.normal(0, 9, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8), "RGB").convert(mode)


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if (parameter == 1).all():  # a norm's
                parameter.copy_(1 + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(1.2 / math.sqrt(parameter[0].numel()) * noise)
            parameter.copy_(parameter.bfloat16())


def norm(model, of_tower):
    return math.sqrt(sum(p.grad.double().square().sum().item()
                         for name, p in model.named_parameters()
                         if p.grad is not None and ("visual" in name) == of_tower))


def compute(model, processor, folder, row, seed):
    config = model.config
    names = [part for part in row if isinstance(part, str)]
    pictures = [Image.open(os.path.join(folder, name)) for name in names]
    data = processor(pictures, return_tensors="pt") if pictures else {}
    generator = torch.Generator().manual_seed(seed)
    ids, image = [], 0
    for part in row:
        if isinstance(part, str):
            count = int(data["image_grid_thw"][image].prod()) // processor.merge_size**2
            ids += [config.vision_start_token_id] + [config.image_token_id] * count
            ids += [config.vision_end_token_id]
            image += 1
        else:
            ids += torch.randint(3, 36, (part,), generator=generator).tolist()
    tokens = torch.tensor([ids])
    types = (tokens == config.image_token_id).int()
    extra = dict(data, mm_token_type_ids=types) if pictures else {}
    model.zero_grad()
    model.model.rope_deltas = None
    logits = model(input_ids=tokens, use_cache=False, **extra).logits
    logprobs = logits.log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
    logprobs.mean().backward()
    if pictures:
        positions, delta = model.model.get_rope_index(
            tokens, mm_token_type_ids=types, image_grid_thw=data["image_grid_thw"])
        positions, next_position = positions[:, 0].tolist(), len(ids) + int(delta)
    else:
        positions, next_position = [list(range(len(ids)))] * 3, len(ids)
    return dict(ids=ids, images=names, logprobs=logprobs.tolist(), positions=positions,
                next_position=next_position,
                grad_norms=dict(tower=norm(model, True), text=norm(model, False)))


def write(folder, case):
    model_type, tower, text = CASES[case]
    os.makedirs(folder, exist_ok=True)
    config = AutoConfig.for_model(model_type, text_config=text, vision_config=tower, **IDS)
    torch.manual_seed(1)
    model = AutoModelForImageTextToText.from_config(
        config, dtype=torch.float32, attn_implementation="eager", **EXPERTS).eval()
    randomize(model, 2)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    weights = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    for name in weights:  # the Hub has Qwen3-VL's experts as [in, out], transformers 5 writes [out, in]
        if name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            weights[name] = weights[name].transpose(1, 2).contiguous()
    save_file(weights, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    os.remove(os.path.join(folder, "generation_config.json"))
    side = PATCH * 2
    is_qwen3 = model_type.startswith("qwen3")  # also Qwen3.5
    halves = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if is_qwen3 else {}
    processor = Qwen2VLImageProcessor(
        patch_size=PATCH, size=dict(shortest_edge=4 * side**2, longest_edge=30 * side**2), **halves)
    processor.save_pretrained(folder)
    if is_qwen3:  # as on the Hub
        path = os.path.join(folder, "preprocessor_config.json")
        with open(path) as file:
            names = dict(json.load(file), image_processor_type="Qwen2VLImageProcessorFast",
                         processor_class="Qwen3VLProcessor")
        with open(path, "w") as file:
            json.dump(names, file, indent=2, sort_keys=True)
            file.write("\n")
    for seed, (name, (height, width, mode)) in enumerate(IMAGES.items()):
        picture(height, width, mode, seed).save(os.path.join(folder, name))
    rows = [compute(model, processor, folder, row, seed) for seed, row in enumerate(ROWS)]
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(dict(rows=rows), file)
        file.write("\n")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for case in sys.argv[2:] or CASES:
        write(os.path.join(sys.argv[1], case), case)


if __name__ == "__main__":
    main()
