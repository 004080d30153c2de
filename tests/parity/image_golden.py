#!/usr/bin/env python3
"""Writes tests/common/images/golden: image files with the pixels that transformers gets of them, and what its image
processors make of pictures. Needs torch, torchvision 0.26, transformers, Pillow and xxhash.

    python tests/parity/image_golden.py [--output FOLDER] [--data FOLDER]

    files/        what image_files.py makes
    decoded.jsonl a line for each: {"file", "height", "width", "digest"} of RGB, upright, transparency over white
    processed.jsonl {"height", "width", "config", "shape", "grid", "digest"}: pixel_values of pattern(height, width)
    sizes.jsonl   {"height", "width", "factor", "min_pixels", "max_pixels", "resized"}: smart_resize()
    chats.jsonl   {"messages", "images", "ids"}: what Qwen2VLProcessor makes of chats about files, with the tokenizer
                  tokenizers/qwen2.5 of the data and the template chat_template.jinja, which stays as it is
    gemma_chats.jsonl  the same of Gemma3Processor, whose images have 4 tokens, with the tokens GEMMA_TOKENS added
                  to that tokenizer
    tile_chats.jsonl {"tokenizer", "added_tokens", "preprocessor", "image_seq_len", "chat_template", "messages", "ids"}:
                  what Idefics3Processor makes of chats, with a tokenizer of the data and these tokens more

A digest is XXH3-128 of the bytes.
"""
import argparse
import json
import pathlib
import warnings

import numpy as np
import torch
import transformers
import xxhash
from PIL import Image, ImageOps
from transformers.image_transforms import convert_to_rgb
from transformers.image_utils import load_image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

import image_files

HERE = pathlib.Path(__file__).resolve().parent


def digest(array):
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).tobytes())


def decoded(path):
    image = ImageOps.exif_transpose(Image.open(path))
    return convert_to_rgb(image, return_numpy=True)


def pattern(height, width):
    """A picture without a file: processed_golden_test.cc makes the same."""
    y, x, c = np.mgrid[0:height, 0:width, 0:3]
    return ((x * 7 + y * 13 + c * 50 + x * y % 29 * 3) % 256).astype(np.uint8)


def processed(config, height, width, among_others=False):
    kind = getattr(transformers, config["image_processor_type"])
    processor = kind.from_dict({k: v for k, v in config.items() if k not in ("image_processor_type", "processor_class")})
    options = {}
    if kind.__name__.startswith(("Idefics3", "SmolVLM")):
        options["return_row_col_info"] = True
    picture = Image.fromarray(pattern(height, width))
    out = processor([[picture, picture]] if among_others else [picture], return_tensors="pt", **options)
    values = out["pixel_values"]
    grid = [1, 0, 0]
    if "image_grid_thw" in out:
        grid = out["image_grid_thw"][0].tolist()
    elif "rows" in out:
        grid = [1, out["rows"][0][0], out["cols"][0][0]]
        values = values[0]
    elif kind.__name__.startswith("LlavaOnevision"):
        values = values[0]
        grid = None  # not among its outputs
    elif kind.__name__.startswith("GotOcr2"):
        grid = None
    assert values.dtype == torch.float32
    row = dict(height=height, width=width, config=config, shape=list(values.shape), digest=digest(values.numpy()))
    if grid is not None:
        row["grid"] = grid
    if among_others:  # of a prompt
        row["among_others"] = True
    return row


def cases():
    qwen = lambda **kw: dict(image_processor_type="Qwen2VLImageProcessor", **kw)
    small = dict(shortest_edge=56 * 56, longest_edge=28 * 28 * 80)
    for size in ((90, 120), (70, 57), (224, 224), (28, 28), (1, 1), (3, 500), (500, 3), (333, 222), (42, 70), (14, 300)):
        yield qwen(size=small), *size
    yield qwen(), 300, 400
    yield qwen(min_pixels=3136, max_pixels=12845056, size=None), 300, 400
    yield qwen(patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216), image_mean=[0.5] * 3, image_std=[0.5] * 3), 200, 340
    yield qwen(patch_size=16, merge_size=1, temporal_patch_size=1, size=small), 90, 120
    yield qwen(do_resize=False), 56, 84
    yield qwen(size=small, do_rescale=False), 60, 60
    yield qwen(size=small, do_normalize=False), 60, 60
    yield qwen(size=small, rescale_factor=1 / 127.5), 60, 60
    yield qwen(size=small, resample=2), 90, 120
    for kind in ("CLIPImageProcessor", "LlavaImageProcessor"):
        for size in ((90, 120), (500, 260), (224, 224)):
            yield dict(image_processor_type=kind), *size
    yield dict(image_processor_type="CLIPImageProcessor", size=56, crop_size=80), 90, 120
    yield dict(image_processor_type="CLIPImageProcessor", size=dict(height=40, width=60), do_center_crop=False), 90, 120
    yield dict(image_processor_type="CLIPImageProcessor", size=dict(shortest_edge=57), crop_size=dict(height=50, width=75)), 90, 120
    yield dict(image_processor_type="LlavaImageProcessor", do_pad=True, size=dict(shortest_edge=60), crop_size=60), 90, 121
    for size in ((90, 120), (500, 260), (896, 50)):
        yield dict(image_processor_type="Gemma3ImageProcessor", size=dict(height=112, width=112)), *size
    for size in ((90, 120), (500, 260)):
        yield dict(image_processor_type="SiglipImageProcessor", size=dict(height=112, width=112)), *size
    pins = [[56, 56], [56, 112], [112, 56], [112, 112], [56, 168]]
    for size in ((90, 120), (50, 260), (300, 40), (56, 56), (113, 111)):
        yield dict(image_processor_type="LlavaOnevisionImageProcessor", size=dict(height=56, width=56), image_grid_pinpoints=pins), *size
    for size in ((90, 120), (300, 40), (57, 57)):
        yield dict(image_processor_type="LlavaOnevisionImageProcessor", size=dict(height=56, width=56), image_grid_pinpoints=pins), *size, True
    yield dict(image_processor_type="LlavaOnevisionImageProcessor"), 700, 400
    for kind in ("Idefics3ImageProcessor", "SmolVLMImageProcessor"):
        for size in ((90, 120), (500, 260), (30, 30), (31, 400)):
            yield dict(image_processor_type=kind, size=dict(longest_edge=112), max_image_size=dict(longest_edge=56)), *size
    yield dict(image_processor_type="Idefics3ImageProcessor", size=dict(longest_edge=112), max_image_size=dict(longest_edge=56), do_image_splitting=False), 90, 120
    yield dict(image_processor_type="Idefics3ImageProcessor", size=dict(longest_edge=50), max_image_size=dict(longest_edge=56)), 50, 50
    yield dict(image_processor_type="SmolVLMImageProcessor", size=dict(height=70, width=60), max_image_size=dict(longest_edge=56)), 90, 120
    for size in ((1, 1), (2, 900), (700, 3), (57, 56), (1000, 1300)):
        yield dict(image_processor_type="SmolVLMImageProcessor", size=dict(longest_edge=256), max_image_size=dict(longest_edge=64)), *size
    yield dict(image_processor_type="SmolVLMImageProcessor", size=dict(longest_edge=5000), max_image_size=dict(longest_edge=512)), 20, 700
    yield dict(image_processor_type="Idefics3ImageProcessor", size=dict(longest_edge=63), max_image_size=dict(longest_edge=63)), 40, 40
    for size in ((90, 120), (500, 260), (60, 300), (56, 56), (200, 200), (400, 400)):
        for crop in (False, True):
            yield dict(image_processor_type="GotOcr2ImageProcessor", size=dict(height=56, width=56), crop_to_patches=crop, max_patches=6), *size
    yield dict(image_processor_type="GotOcr2ImageProcessor", size=56, crop_to_patches=True, min_patches=3, max_patches=5), 90, 120
    for size in ((90, 120), (500, 260), (60, 300), (64, 64), (1, 90)):
        yield dict(image_processor_type="PixtralImageProcessor", size=dict(longest_edge=128), patch_size=dict(height=16, width=16)), *size
    yield dict(image_processor_type="PixtralImageProcessor", size=dict(longest_edge=128), patch_size=28), 90, 120
    yield dict(image_processor_type="PixtralImageProcessor", size=dict(height=100, width=60), patch_size=14), 90, 120


def sizes():
    rng = np.random.default_rng(1)
    for i in range(200):
        height, width = (int(v) for v in np.exp(rng.uniform(0, 8, 2)))
        height = height or 1
        if max(height, width) > 200 * min(height, width):
            continue
        factor, least, most = [(28, 3136, 1003520), (28, 3136, 12845056), (32, 65536, 16777216), (28, 200704, 200704), (32, 1, 2048)][i % 5]
        yield dict(height=height, width=width, factor=factor, min_pixels=least, max_pixels=most, resized=smart_resize(height, width, factor, least, most))


def chats(output, data):
    def image(name, source=True):
        return {"type": "image", "image": f"files/{name}"} if source else {"type": "image"}

    def text(words):
        return {"type": "text", "text": words}

    sideways = "jpeg_exif_6.jpg"
    conversations = [
        ([{"role": "user", "content": [image("png_2_8.png"), text("What is this?")]}], None),
        ([{"role": "user", "content": "Hello"}], None),
        ([{"role": "system", "content": "Be brief."},
          {"role": "user", "content": [text("First "), image(sideways), text(", then "), image("webp_alpha.webp")]},
          {"role": "assistant", "content": "Two pictures."},
          {"role": "user", "content": [image("png_palette_alpha.png")]}], None),
        ([{"role": "user", "content": [image("", False), image(sideways), text("Compare.")]}], ["files/jpeg_l.jpg", f"files/{sideways}"]),
        ([{"role": "user", "content": "<|vision_start|><|image_pad|><|vision_end|>What?"}], ["files/jpeg_l.jpg"]),
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(data / "tokenizers/qwen2.5")
    images = transformers.Qwen2VLImageProcessor(size=dict(shortest_edge=3136, longest_edge=15680))
    template = (output / "chat_template.jinja").read_text()
    processor = transformers.Qwen2VLProcessor(images, tokenizer, transformers.Qwen2VLVideoProcessor(), chat_template=template)
    for messages, listed in conversations:
        rendered = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        parts = [part for m in messages if isinstance(m["content"], list) for part in m["content"] if part["type"] == "image"]
        pictures = [load_image(str(output / name)) for name in listed or [part["image"] for part in parts]]
        ids = processor(text=[rendered], images=pictures or None)["input_ids"][0]
        row = dict(messages=messages, add_generation_prompt=True, ids=ids)
        yield row | (dict(images=listed) if listed else {})


# Of an image: its beginning, a row, its end.
GEMMA_TOKENS = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"]


def gemma_chats(output, data):
    def image(name):
        return {"type": "image", "image": f"files/{name}"}

    def text(words):
        return {"type": "text", "text": words}

    conversations = [
        ([{"role": "user", "content": [image("png_2_8.png"), text("What is this?")]}], None),
        ([{"role": "user", "content": "Hello"}], None),
        # Ends of line join those around an image.
        ([{"role": "user", "content": [text("First\n"), image("jpeg_l.jpg"), text("\n\nthen "), image("png_2_8.png"),
                                       image("jpeg_l.jpg"), text(" ?")]},
          {"role": "assistant", "content": "Three."},
          {"role": "user", "content": [image("png_2_8.png")]}], None),
        ([{"role": "user", "content": "<start_of_image>\nWhat?"}], ["files/jpeg_l.jpg"]),
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(data / "tokenizers/qwen2.5")
    tokenizer.add_tokens([transformers.AddedToken(token, special=True, normalized=False) for token in GEMMA_TOKENS])
    for name, token in zip(["boi_token", "image_token", "eoi_token"], GEMMA_TOKENS):
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))
    template = (output / "chat_template.jinja").read_text().replace(
        "<|vision_start|><|image_pad|><|vision_end|>", GEMMA_TOKENS[0])
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessor(size=dict(height=16, width=16)), tokenizer, template, image_seq_length=4)
    for messages, listed in conversations:
        rendered = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        parts = [part for m in messages if isinstance(m["content"], list) for part in m["content"] if part["type"] == "image"]
        pictures = [load_image(str(output / name)) for name in listed or [part["image"] for part in parts]]
        ids = processor(text=[rendered], images=[pictures] if pictures else None)["input_ids"][0]
        row = dict(messages=messages, add_generation_prompt=True, ids=ids)
        yield row | (dict(images=listed) if listed else {})


TILE_TEMPLATE = (
    "{% for message in messages %}{{message['role'].capitalize()}}{% if message['content'][0]['type'] == 'image' %}"
    "{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}"
    "{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}")


def tile_chats(output, data):
    def user(*parts):
        content = [{"type": "text", "text": part} if part.startswith(" ") or "." not in part else
                   {"type": "image", "image": f"files/{part}"} for part in parts]
        return {"role": "user", "content": content}

    answer = {"role": "assistant", "content": [{"type": "text", "text": "Two pictures"}]}
    square, wide, upright = "png_2_8.png", "jpeg_exif_6.jpg", "webp_alpha.webp"
    conversations = [
        [user(wide, "What is this?")],
        [user("Hello")],
        [user(" First\n", square, "\n\nthen", wide, upright, " \n"), answer, user(square, " Again?")],
        [user("Compare ", wide, wide)],
    ]
    for tokenizer_name in ("gpt2", "qwen2.5"):
        # Names of tiles as tokens and as text, images cut and whole, and more tiles than nine on a side.
        for has_names, splits, longest, shown in ((False, True, 36, (1, 2)), (True, True, 50, (2, 3)),
                                                  (False, False, 60, (2,)), (False, True, 190, (0,))):
            tokenizer = transformers.AutoTokenizer.from_pretrained(data / f"tokenizers/{tokenizer_name}")
            first = len(tokenizer)
            if has_names:
                names = [f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)]
                tokenizer.add_tokens(["<global-img>", *names], special_tokens=True)
            images = transformers.Idefics3ImageProcessor(
                size=dict(longest_edge=longest), max_image_size=dict(longest_edge=18), do_image_splitting=splits)
            processor = transformers.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=TILE_TEMPLATE)
            added = [dict(id=i, content=token.content, single_word=token.single_word, lstrip=token.lstrip,
                          rstrip=token.rstrip, normalized=token.normalized, special=token.special)
                     for i, token in sorted(tokenizer.added_tokens_decoder.items()) if i >= first]
            for messages in [conversations[i] for i in shown]:
                rendered = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
                pictures = [load_image(str(output / part["image"])) for message in messages
                            for part in message["content"] if part["type"] == "image"]
                ids = processor(text=[rendered], images=[pictures] if pictures else None)["input_ids"][0]
                yield dict(tokenizer=f"tokenizers/{tokenizer_name}", added_tokens=added,
                           preprocessor=dict(image_processor_type="Idefics3ImageProcessor", do_image_splitting=splits,
                                             size=dict(longest_edge=longest), max_image_size=dict(longest_edge=18)),
                           image_seq_len=4, chat_template=TILE_TEMPLATE, messages=messages,
                           add_generation_prompt=True, ids=ids)


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parents[1] / "tests/common/images/golden")
    parser.add_argument("--data", type=pathlib.Path, default=HERE.parents[2] / "shared/data")
    arguments = parser.parse_args()
    output = arguments.output
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (output / "files").mkdir(parents=True, exist_ok=True)
    rows = []
    for name, data in image_files.files():
        (output / "files" / name).write_bytes(data)
        pixels = decoded(output / "files" / name)
        rows.append(dict(file=name, height=pixels.shape[0], width=pixels.shape[1], digest=digest(pixels)))
    write_lines(output / "decoded.jsonl", rows)
    write_lines(output / "processed.jsonl", [processed(*case) for case in cases()])
    write_lines(output / "sizes.jsonl", sizes())
    write_lines(output / "chats.jsonl", chats(output, arguments.data))
    write_lines(output / "gemma_chats.jsonl", gemma_chats(output, arguments.data))
    write_lines(output / "tile_chats.jsonl", tile_chats(output, arguments.data))


if __name__ == "__main__":
    main()
