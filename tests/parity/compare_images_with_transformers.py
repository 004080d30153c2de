"""Compares Tandem with transformers on random models that see tiles of images:

    python tests/parity/compare_images_with_transformers.py FAMILY [SEED...] [--tandem build/bin/tandem]

FAMILY: gemma3, idefics3, llava, llava_onevision or smolvlm. Each seed is a model with sizes of its own and prompts
with pictures of ten shapes, alone, among others and between texts.

  score    log-probs in float32: trainer, rollout, rollout with two tensor-parallel ranks
  exact    both sides again with --numerics exact: the same bits
  greedy   tokens of a greedy continuation, but for those of placeholders, which Tandem does not sample

Prints a line for each seed and ends with 1 if any differs. Needs torch, torchvision, transformers, safetensors and
Pillow."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import torch
import vision_golden as golden
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText

SHAPES = [(1, 60), (60, 1), (2, 2), (5, 100), (100, 7), (64, 64), (123, 45), (90, 120), (37, 90), (17, 19)]
IMAGE, VIDEO = 36, 37
TOLERANCE = 1e-4
TIE = 1e-4


class Different(Exception):
    """The two programs do not agree, or one of them failed."""


def gemma3(draw):
    side, patch, rows = draw.choice([(16, 4, 4), (24, 4, 9), (12, 2, 9), (18, 3, 4), (32, 4, 16), (30, 5, 36)])
    layers = [draw.choice(["sliding_attention", "full_attention"]) for _ in range(draw.randint(2, 4))]
    text = dict(golden.TEXT_GEMMA, num_hidden_layers=len(layers), layer_types=layers, max_position_embeddings=1024,
                head_dim=draw.choice([8, 12, 16]), query_pre_attn_scalar=draw.choice([8, 10]),
                sliding_window=draw.choice([2, 3, 5, 9, 40]), num_attention_heads=4,
                num_key_value_heads=draw.choice([2, 4]))
    tower = dict(golden.SIGLIP_GEMMA, image_size=side, patch_size=patch, num_hidden_layers=draw.randint(1, 3),
                 vision_use_head=draw.random() < 0.5)
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=tower, image_token_index=IMAGE,
                                  mm_tokens_per_image=rows, **golden.GEMMA_IDS)
    return config, golden.Gemma3ImageProcessor(size=dict(height=side, width=side))


def idefics3(draw, model_type="idefics3"):
    scale, patch = draw.choice([1, 2, 3]), draw.choice([2, 3, 4])
    side = scale * patch * draw.randint(1, 5)
    text = dict(golden.TEXT_IDEFICS, num_hidden_layers=draw.randint(1, 3), max_position_embeddings=4096,
                num_key_value_heads=2, tie_word_embeddings=False)
    tower = dict(golden.TILES, image_size=side, patch_size=patch, num_hidden_layers=draw.randint(1, 3))
    config = AutoConfig.for_model(model_type, text_config=text, vision_config=tower, image_token_id=IMAGE,
                                  scale_factor=scale, tie_word_embeddings=draw.random() < 0.5)
    processor = golden.Idefics3ImageProcessor if model_type == "idefics3" else golden.SmolVLMImageProcessor
    return config, processor(size=dict(longest_edge=side * draw.randint(1, 3) - draw.choice([0, 1, 3])),
                             max_image_size=dict(longest_edge=side), do_image_splitting=draw.random() < 0.7)


def smolvlm(draw):
    return idefics3(draw, "smolvlm")


def llava(draw):
    side, patch = draw.choice([(12, 3), (16, 4), (18, 4), (21, 5), (14, 7)])
    text = dict(golden.PLAIN, model_type="llama", max_position_embeddings=2048, num_hidden_layers=draw.randint(1, 3),
                num_key_value_heads=2)
    tower = dict(golden.CLIP, image_size=side, patch_size=patch, num_hidden_layers=draw.randint(2, 4))
    config = AutoConfig.for_model("llava", text_config=text, vision_config=tower, image_token_index=IMAGE,
                                  vision_feature_layer=draw.choice([-1, -2]),
                                  vision_feature_select_strategy=draw.choice(["default", "full"]))
    return config, golden.CLIPImageProcessor(size=dict(shortest_edge=side), crop_size=dict(height=side, width=side))


def llava_onevision(draw):
    side, patch = draw.choice([(12, 3), (16, 4), (18, 4), (21, 5), (14, 7), (24, 3)])
    canvases = [[side * draw.randint(1, 5), side * draw.randint(1, 5)] for _ in range(draw.randint(2, 9))]
    text = dict(golden.PLAIN, model_type="qwen2", max_position_embeddings=8192, num_hidden_layers=draw.randint(1, 3),
                num_key_value_heads=2, tie_word_embeddings=draw.random() < 0.5)
    tower = dict(golden.SIGLIP, image_size=side, patch_size=patch, num_hidden_layers=draw.randint(2, 4),
                 vision_use_head=draw.random() < 0.5)
    config = AutoConfig.for_model(
        "llava_onevision", text_config=text, vision_config=tower, image_token_index=IMAGE, video_token_index=VIDEO,
        image_grid_pinpoints=canvases, vision_aspect_ratio=f"anyres_max_{draw.choice([1, 2, 4, 9])}",
        vision_feature_layer=draw.choice([-1, -2]))
    return config, golden.LlavaOnevisionImageProcessor(
        size=dict(height=side, width=side), image_grid_pinpoints=canvases, image_mean=[0.5] * 3, image_std=[0.5] * 3)


FAMILIES = {of.__name__: of for of in (gemma3, idefics3, llava, llava_onevision, smolvlm)}


class Comparison:
    def __init__(self, family, seed, folder, tandem):
        self.folder, self.tandem = folder, tandem
        draw = random.Random(seed)
        config, processor = FAMILIES[family](draw)
        torch.manual_seed(seed)
        self.model = AutoModelForImageTextToText.from_config(
            config, dtype=torch.float32, attn_implementation="eager").eval()
        golden.randomize(self.model, seed + 100)
        self.placeholders = [IMAGE, VIDEO] if hasattr(config, "video_token_index") else [IMAGE]
        self.model.save_pretrained(folder)
        processor.save_pretrained(folder)
        self.processor = golden.load_processor(self.model, folder)
        names = [f"{i}.png" for i in range(len(SHAPES))]
        for i, (height, width) in enumerate(SHAPES):
            golden.picture(height, width, "RGB", seed + i).save(os.path.join(folder, names[i]))
        # Numbers are tokens of text, of which one is behind every image.
        prompts = [[3, name, 4] for name in draw.sample(names, 5)]
        prompts += [[2, draw.choice(names), 1, draw.choice(names), 5, draw.choice(names), 2],
                    [draw.choice(names), 6, draw.choice(names), 1], [9]]
        self.rows = [golden.compute(self.model, self.processor, folder, prompt, seed * 50 + i)
                     for i, prompt in enumerate(prompts)]
        with open(os.path.join(folder, "in.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(dict(ids=row["ids"], images=row["images"])) + "\n" for row in self.rows)

    def run(self, *command):
        done = subprocess.run([self.tandem, *command, "--model", self.folder, "--dtype", "float32", "--input",
                               os.path.join(self.folder, "in.jsonl")], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise Different(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def check_scores(self):
        sides = {"trainer": ("--side", "trainer"), "rollout": ("--side", "rollout"),
                 "parallel": ("--side", "rollout", "--set", "rollout.tensor_model_parallel_size=2")}
        worst = {}
        for name, options in sides.items():
            found = [line["logprobs"] for line in self.run("score", *options)]
            worst[name] = max(abs(a - b) for ours, row in zip(found, self.rows, strict=True)
                              for a, b in zip(ours, row["logprobs"], strict=True))
            if not worst[name] <= TOLERANCE:
                raise Different(f"log-probs of {name} differ by {worst[name]:.2e}")
        exact = [[line["logprobs"] for line in self.run("score", "--side", side, "--numerics", "exact")]
                 for side in ("trainer", "rollout")]
        if exact[0] != exact[1]:
            raise Different("with --numerics exact the two sides have other bits")
        return "score " + " ".join(f"{name} {value:.0e}" for name, value in worst.items())

    def check_greedy(self):
        lines = self.run("generate", "--max-tokens", "5", "--temperature", "0", "--ignore-eos")
        for line, row in zip(lines, self.rows, strict=True):
            ids = list(row["ids"])
            pictures = [Image.open(os.path.join(self.folder, name)) for name in row["images"]]
            data = golden.process(self.model, self.processor, pictures)
            for found in line["ids"]:
                tokens = torch.tensor([ids])
                with torch.no_grad():
                    logits = self.model(input_ids=tokens, use_cache=False,
                                        **golden.extra_inputs(self.model, tokens, data)).logits[0, -1]
                logits[self.placeholders] = -torch.inf
                if logits.max() - logits[found] > TIE:
                    raise Different(f"greedy: token {found} after {len(ids)}, expected {int(logits.argmax())}")
                ids.append(found)
        return f"greedy {len(lines)} rows"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--tandem", default="build/bin/tandem")
    arguments = parser.parse_args()
    failed = 0
    for seed in arguments.seeds or [1, 2, 3]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                comparison = Comparison(arguments.family, seed, folder, arguments.tandem)
                counts = [row["ids"].count(IMAGE) for row in comparison.rows]
                results = [comparison.check_scores(), comparison.check_greedy()]
                print(f"{arguments.family} {seed}: ok: placeholders {counts}; {'; '.join(results)}", flush=True)
            except Different as error:
                failed += 1
                print(f"{arguments.family} {seed}: DIFFERENT: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
