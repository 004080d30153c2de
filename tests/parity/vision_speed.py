"""Generation and encoding with images by transformers on a CPU, beside `tandem bench generate --images`.

usage: vision_speed.py make DIR                              (needs torch, torchvision, transformers, Pillow)
       vision_speed.py run DIR BATCH PROMPT NEW DTYPE [IMAGES [SIZE]]

make writes a random Qwen2-VL: text of hidden 512 and 8 layers, the shape of the text benchmarks, with a
tower of 12 layers of width 384. run prints one JSON object: tokens_per_second of generate() from pixels
on, and encode_patches_per_second of the tower alone, each the best of three.
"""
import json
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

IDS = dict(image_token_id=4090, video_token_id=4091, vision_start_token_id=4092,
           vision_end_token_id=4093)


def make(folder):
    text = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
                num_key_value_heads=4, vocab_size=4096, max_position_embeddings=4096, bos_token_id=0,
                eos_token_id=0, pad_token_id=0,
                rope_parameters=dict(rope_type="default", rope_theta=1000000.0,
                                     mrope_section=[8, 12, 12]))
    vision = dict(depth=12, embed_dim=384, hidden_size=512, num_heads=6, mlp_ratio=4, patch_size=14)
    config = AutoConfig.for_model("qwen2_vl", text_config=text, vision_config=vision, **IDS)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    Qwen2VLImageProcessor().save_pretrained(folder)
    print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters ->", folder)


def best(work):
    seconds = []
    for _ in range(3):
        start = time.time()
        work()
        seconds.append(time.time() - start)
    return min(seconds)


def run(folder, batch, prompt, new, dtype, images=1, size=224):
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval()
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randint(0, 256, (batch * images, 3, size, size), dtype=torch.uint8,
                             generator=generator)
    inputs = Qwen2VLImageProcessor.from_pretrained(folder)(list(pictures), return_tensors="pt")
    pixels, grid = inputs["pixel_values"].to(model.dtype), inputs["image_grid_thw"]
    rows = int(grid[0].prod()) // 4
    text = torch.randint(1, IDS["image_token_id"], (batch, prompt), generator=generator)
    # A run of placeholders behind each of the first tokens.
    run_of = [IDS["vision_start_token_id"]] + rows * [IDS["image_token_id"]] + [
        IDS["vision_end_token_id"]]
    ids = torch.tensor([sum(([token] + (run_of if i < images else [])
                             for i, token in enumerate(row)), []) for row in text.tolist()])

    def generate(tokens):
        model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels,
                       mm_token_type_ids=(ids == IDS["image_token_id"]).int(),
                       image_grid_thw=grid, max_new_tokens=tokens, min_new_tokens=tokens,
                       do_sample=True, top_k=50)

    with torch.inference_mode():
        generate(4)
        generated = best(lambda: generate(new))
        encoded = best(lambda: model.model.get_image_features(pixels, grid))
    print(json.dumps(dict(dtype=dtype, batch=batch, prompt_tokens=prompt, new_tokens=new,
                          image_tokens=rows * images, seconds=generated,
                          tokens_per_second=batch * new / generated, encode_seconds=encoded,
                          encode_patches_per_second=len(pixels) / encoded)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 3:
        make(sys.argv[2])
    elif sys.argv[1:2] == ["run"] and len(sys.argv) in (7, 8, 9):
        counts = [int(value) for value in sys.argv[3:6]]
        run(sys.argv[2], *counts, sys.argv[6], *[int(value) for value in sys.argv[7:]])
    else:
        sys.exit(__doc__)
