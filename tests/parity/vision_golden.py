"""Golden files for tests/common/model/vision_test.cc: small random models that see images, the images, and
what transformers computes on them.

usage: vision_golden.py DIR [CASE...]        (needs torch, torchvision, transformers, safetensors, Pillow)

Writes DIR/CASE/{config.json, preprocessor_config.json, model.safetensors, *.png, golden.json}. Weights are
rounded to bfloat16, in which they are saved, before anything is computed in float32. golden.json has
"rows", each with
  ids, images    token ids with a placeholder for each row of an image, and the images in the order of their runs
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
from transformers.models.clip.image_processing_clip import CLIPImageProcessor
from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor
from transformers.models.idefics3.image_processing_idefics3 import Idefics3ImageProcessor
from transformers.models.llava_onevision.image_processing_llava_onevision import LlavaOnevisionImageProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.pixtral.image_processing_pixtral import PixtralImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor
from transformers.models.smolvlm.image_processing_smolvlm import SmolVLMImageProcessor

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
# Of Pixtral: a tower as wide as 2 heads, before a wider language model.
TOWER_PIXTRAL = dict(model_type="pixtral", num_hidden_layers=2, hidden_size=16, intermediate_size=20,
                     num_attention_heads=2, patch_size=PATCH, image_size=48, hidden_act="silu")
TEXT_MISTRAL = dict(model_type="mistral", hidden_size=24, intermediate_size=20, num_hidden_layers=2,
                    num_attention_heads=2, num_key_value_heads=1, head_dim=8, vocab_size=41,
                    max_position_embeddings=256, sliding_window=None, bos_token_id=1, eos_token_id=2,
                    pad_token_id=0)
# YaRN, and queries that grow beyond 16 tokens.
TEXT_MINISTRAL = dict(TEXT_MISTRAL, model_type="ministral3",
                      rope_parameters=dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0,
                                           original_max_position_embeddings=16, beta_fast=32.0,
                                           beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                                           llama_4_scaling_beta=0.1))
BREAK, END = 37, 38  # behind lines of placeholders
EXPERTS = dict(experts_implementation="eager")
# Of towers that see tiles: the language model's tokens have one position.
PLAIN = dict(TEXT, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
TILES = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=2, patch_size=PATCH)
CLIP = dict(TILES, model_type="clip_vision_model", image_size=16)
# Pixels beyond the last patch are not seen.
SIGLIP = dict(TILES, model_type="siglip_vision_model", image_size=18)
INTERN = dict(TILES, image_size=[16, 16], patch_size=[PATCH, PATCH])
SQUARE = dict(height=16, width=16)
CLIP_PROCESSOR = CLIPImageProcessor(size=dict(shortest_edge=16), crop_size=SQUARE)
# Of Gemma 3: 16 patches of a tile become 4 rows, which see one another; all layers but every third have
# a window.
TEXT_GEMMA = dict(TEXT, model_type="gemma3_text", num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=10,
                  sliding_window=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                  rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                                       sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
SIGLIP_GEMMA = dict(TILES, num_hidden_layers=2, model_type="siglip_vision_model", image_size=16,
                    vision_use_head=False)
GEMMA_IDS = dict(boi_token_index=38, eoi_token_index=39)
GEMMA_PROCESSOR = Gemma3ImageProcessor(size=SQUARE)
# Of Idefics 3: ids beyond the others are those of the texts between tiles.
TEXT_IDEFICS = dict(PLAIN, model_type="llama", vocab_size=52)
FAKE, GLOBAL, LINE, LAST_LINE, FIRST_NAME = 38, 39, 41, 42, 43
# 25 patches on a side: with transformers' roundings some take the position of the one before.
SHARES = dict(TILES, hidden_size=8, patch_size=2, image_size=51)
# A model type, its tower, its language model, other keys of its config.json, and its image processor.
TILE_CASES = {
    "llava": ("llava", CLIP, dict(PLAIN, model_type="llama"), dict(), CLIP_PROCESSOR),
    # The class token is a row, too.
    "llava-full": ("llava", CLIP, dict(PLAIN, model_type="mistral", head_dim=12, sliding_window=30),
                   dict(vision_feature_select_strategy="full", vision_feature_layer=3,
                        multimodal_projector_bias=False), CLIP_PROCESSOR),
    "llava-siglip": ("llava", SIGLIP, dict(PLAIN, model_type="qwen2", tie_word_embeddings=True),
                     dict(vision_feature_select_strategy="full", vision_feature_layer=1),
                     SiglipImageProcessor(size=dict(height=18, width=18))),
    "gemma3": ("gemma3", SIGLIP_GEMMA, TEXT_GEMMA, dict(GEMMA_IDS, mm_tokens_per_image=4), GEMMA_PROCESSOR),
    # An image has a row for each patch, more than a block of keys, and there are two images in it.
    "gemma3-long": ("gemma3", dict(SIGLIP_GEMMA, image_size=52, hidden_size=8, intermediate_size=8,
                                   num_hidden_layers=1, vision_use_head=True),
                    dict(TEXT_GEMMA, num_hidden_layers=2, head_dim=8, num_attention_heads=4, hidden_size=12,
                         num_key_value_heads=2, sliding_window=40, intermediate_size=12,
                         max_position_embeddings=1024,
                         layer_types=["sliding_attention", "full_attention"]),
                    dict(GEMMA_IDS, mm_tokens_per_image=169),
                    Gemma3ImageProcessor(size=dict(height=52, width=52))),
    "internvl": ("internvl", INTERN, dict(PLAIN, model_type="qwen2"), dict(),
                 GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=True, max_patches=6)),
    "internvl-norms": ("internvl", dict(INTERN, norm_type="rms_norm", use_qk_norm=True, attention_bias=True),
                       dict(PLAIN, model_type="qwen3", head_dim=12), dict(tie_word_embeddings=False),
                       GotOcr2ImageProcessor(size=SQUARE, crop_to_patches=False)),
    "idefics3": ("idefics3", dict(TILES, image_size=18), TEXT_IDEFICS, dict(scale_factor=2),
                 Idefics3ImageProcessor(size=dict(longest_edge=50), max_image_size=dict(longest_edge=18))),
    "smolvlm": ("smolvlm", SHARES, TEXT_IDEFICS, dict(scale_factor=5, tie_word_embeddings=True),
                SmolVLMImageProcessor(size=dict(longest_edge=60), max_image_size=dict(longest_edge=51),
                                      do_image_splitting=False)),
}
# Canvases of up to 4 tiles; and with many more rows than 2 tiles have, which are shrunk.
ONEVISION = {
    "llava-onevision": (dict(SIGLIP, vision_use_head=False),
                        [[18, 18], [18, 36], [36, 18], [36, 36], [18, 54], [72, 18]], dict()),
    "llava-onevision-shrunk": (dict(SIGLIP, image_size=16), [[48, 48], [32, 64], [16, 80], [64, 16]],
                               dict(vision_aspect_ratio="anyres_max_2", vision_feature_layer=-2,
                                    tie_word_embeddings=True)),
}
for name, (tower, pinpoints, more) in ONEVISION.items():
    side = tower["image_size"]
    TILE_CASES[name] = (
        "llava_onevision", tower, dict(PLAIN, model_type="qwen2"),
        dict(more, image_grid_pinpoints=pinpoints, video_token_index=37),
        LlavaOnevisionImageProcessor(size=dict(height=side, width=side), image_grid_pinpoints=pinpoints,
                                     image_mean=[0.5] * 3, image_std=[0.5] * 3))
IDEFICS = ("idefics3", "smolvlm")
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
# A model type, its tower, its language model and more keys of config.json.
PIXTRAL_CASES = {
    "mistral3": ("mistral3", TOWER_PIXTRAL, TEXT_MISTRAL, dict(tie_word_embeddings=False)),
    "mistral3-ministral": ("mistral3", dict(TOWER_PIXTRAL, hidden_act="gelu"), TEXT_MINISTRAL,
                           dict(tie_word_embeddings=True, multimodal_projector_bias=True)),
}
# Height, width, mode. The processor shrinks the first, rounds the second, and enlarges the third.
IMAGES = {"a.png": (45, 61, "RGB"), "b.png": (23, 30, "L"), "c.png": (9, 11, "RGB")}
# Idefics 3 enlarges all: they differ in how many tiles lie below and beside each other.
IMAGES_IDEFICS = dict(IMAGES, **{"b.png": (12, 60, "L"), "c.png": (30, 7, "RGB")})
# Numbers are tokens of text. Images stand first, last, alone and several times.
MORE_IMAGES = {"d.png": (10, 70, "RGB"), "e.png": (64, 12, "RGB")}
ROWS = [[5, "a.png", 9], [3, "b.png", 4, "a.png", 6], [12], ["c.png", "b.png", 1, "c.png"]]
# Images alone and among others are seen otherwise.
ONEVISION_ROWS = ROWS + [["b.png", 4], [3, "c.png"], [7, "d.png", 2], [2, "e.png", 6], [1, "e.png", "d.png", 5]]


def picture(height, width, mode, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    colors = [127 + 120 * np.sin(x / 5 + y / 9 + seed), x * 255 / width, 255 - y * 255 / height]
    noisy = np.stack(colors, -1) + rng.normal(0, 9, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8), "RGB").convert(mode)


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if (parameter == 1).all():  # a norm's
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith("mm_input_projection_weight"):  # [in, out], and zero at first
                parameter.copy_(1.2 / math.sqrt(len(parameter)) * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(1.2 / math.sqrt(parameter[0].numel()) * noise)
            parameter.copy_(parameter.bfloat16())


def is_of_tower(name):
    return any(part in name for part in ("visual", "vision_tower", "multi_modal_projector", "image_newline",
                                         "vision_model", "connector"))


def norm(model, of_tower):
    return math.sqrt(sum(p.grad.double().square().sum().item()
                         for name, p in model.named_parameters()
                         if p.grad is not None and is_of_tower(name) == of_tower))


def is_pixtral(model):
    return model.config.model_type == "mistral3"


def sees_tiles(model):
    return model.config.model_type in ("llava", "internvl", "gemma3", *IDEFICS)


def is_onevision(model):
    return model.config.model_type == "llava_onevision"


def tile_rows(config):
    """Rows that a tile becomes."""
    vision = config.vision_config
    if config.model_type == "gemma3":
        return config.mm_tokens_per_image
    size, patch = [side if isinstance(side, int) else side[0] for side in (vision.image_size, vision.patch_size)]
    rows = (size // patch) ** 2
    if config.model_type == "internvl":
        return rows // 4
    if config.model_type in IDEFICS:
        return rows // config.scale_factor**2
    has_class = vision.model_type == "clip_vision_model"
    return rows + (has_class and config.vision_feature_select_strategy == "full")


def load_processor(model, folder):
    if is_pixtral(model):
        with open(os.path.join(folder, "processor_config.json")) as file:
            sizes = json.load(file)
        return PixtralImageProcessor.from_pretrained(
            folder, patch_size=sizes["patch_size"] * sizes["spatial_merge_size"])
    with open(os.path.join(folder, "preprocessor_config.json")) as file:
        name = json.load(file)["image_processor_type"].removesuffix("Fast")
    classes = (CLIPImageProcessor, Gemma3ImageProcessor, GotOcr2ImageProcessor, Idefics3ImageProcessor,
               LlavaOnevisionImageProcessor, Qwen2VLImageProcessor, SiglipImageProcessor, SmolVLMImageProcessor)
    return {of.__name__: of for of in classes}[name].from_pretrained(folder)


def process(model, processor, pictures):
    """What the processor makes of pictures, and how many tiles of each where the tower sees tiles."""
    if not pictures:
        return {}
    if is_onevision(model):
        return processor([pictures], return_tensors="pt")  # those of one prompt
    if not sees_tiles(model):
        return processor(pictures, return_tensors="pt")
    if model.config.model_type in IDEFICS:
        made = [processor([picture], return_tensors="pt", return_row_col_info=True) for picture in pictures]
        return dict(pixel_values=torch.cat([of_picture["pixel_values"] for of_picture in made], 1),
                    cuts=[(of_picture["rows"][0][0], of_picture["cols"][0][0]) for of_picture in made])
    # One by one: each may be cut into another number of tiles.
    tiles = [processor([picture], return_tensors="pt")["pixel_values"] for picture in pictures]
    return dict(pixel_values=torch.cat(tiles), num_tiles=[len(of_picture) for of_picture in tiles])


def extra_inputs(model, tokens, data):
    """What a model takes beside ids; data: of process()."""
    if is_pixtral(model) or is_onevision(model) or not data:
        return dict(data)
    if sees_tiles(model):
        seen = {}
        if model.config.model_type == "gemma3":  # by which an image's tokens see one another
            seen = dict(token_type_ids=(tokens == model.config.image_token_id).int())
        return dict(pixel_values=data["pixel_values"], **seen)
    return dict(data, mm_token_type_ids=(tokens == model.config.image_token_id).int())


def onevision_count(config, processor, data, image):
    """Placeholders, as transformers' processor counts them."""
    vision = config.vision_config
    counter = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
    counter.image_processor, counter.image_token = processor, "i"
    counter.num_image_tokens = (vision.image_size // vision.patch_size) ** 2
    counter.vision_aspect_ratio = config.vision_aspect_ratio
    counter.vision_feature_select_strategy = config.vision_feature_select_strategy
    return len(counter.replace_image_token(data, image))


def ids_of_image(model, processor, data, image):
    config = model.config
    if is_onevision(model):
        return [config.image_token_id] * onevision_count(config, processor, data, image)
    if is_pixtral(model):
        side = PATCH * config.spatial_merge_size
        rows, columns = (int(size) // side for size in data["image_sizes"][image])
        ids = ([config.image_token_id] * columns + [BREAK]) * rows
        return ids[:-1] + [END]
    if config.model_type in IDEFICS:
        rows, columns = data["cuts"][image]
        tile = [config.image_token_id] * tile_rows(config)
        ids = []
        for row in range(rows):
            for column in range(columns):
                ids += [FAKE, FIRST_NAME + 3 * row + column] + tile
            ids.append(LINE if row + 1 < rows else LAST_LINE)
        return ids + [FAKE, GLOBAL] + tile + [FAKE]
    if sees_tiles(model):
        count = data["num_tiles"][image] * tile_rows(config)
    else:
        count = int(data["image_grid_thw"][image].prod()) // processor.merge_size**2
    return [IDS["vision_start_token_id"]] + [config.image_token_id] * count + [IDS["vision_end_token_id"]]


def compute(model, processor, folder, row, seed):
    names = [part for part in row if isinstance(part, str)]
    pictures = [Image.open(os.path.join(folder, name)) for name in names]
    data = process(model, processor, pictures)
    generator = torch.Generator().manual_seed(seed)
    ids, image = [], 0
    for part in row:
        if isinstance(part, str):
            ids += ids_of_image(model, processor, data, image)
            image += 1
        else:
            ids += torch.randint(3, 36, (part,), generator=generator).tolist()
    tokens = torch.tensor([ids])
    extra = extra_inputs(model, tokens, data)
    model.zero_grad()
    model.model.rope_deltas = None
    logits = model(input_ids=tokens, use_cache=False, **extra).logits
    logprobs = logits.log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None])[:, 0]
    logprobs.mean().backward()
    if "image_grid_thw" in data:
        positions, delta = model.model.get_rope_index(
            tokens, mm_token_type_ids=extra["mm_token_type_ids"], image_grid_thw=data["image_grid_thw"])
        positions, next_position = positions[:, 0].tolist(), len(ids) + int(delta)
    else:
        positions, next_position = [list(range(len(ids)))] * 3, len(ids)
    return dict(ids=ids, images=names, logprobs=logprobs.tolist(), positions=positions,
                next_position=next_position,
                grad_norms=dict(tower=norm(model, True), text=norm(model, False)))


def save_json(folder, name, content):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(content, file, indent=2, sort_keys=True)
        file.write("\n")


def add_names(folder, **names):
    """As on the Hub: preprocessor_config.json names its classes."""
    name = "preprocessor_config.json"
    with open(os.path.join(folder, name)) as file:
        content = json.load(file)
    save_json(folder, name, dict(content, **names))


def save_pixtral_processor(folder):
    """As on the Hub: two files, of which processor_config.json has the sizes that count."""
    PixtralImageProcessor(size=dict(longest_edge=48), patch_size=PATCH).save_pretrained(folder)
    add_names(folder, image_processor_type="PixtralImageProcessorFast", processor_class="PixtralProcessor")
    save_json(folder, "processor_config.json",
              dict(image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]", image_token="[IMG]",
                   patch_size=PATCH, processor_class="PixtralProcessor", spatial_merge_size=2))


def save_qwen_processor(folder, model_type):
    side = PATCH * 2
    is_qwen3 = model_type.startswith("qwen3")  # also Qwen3.5
    halves = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if is_qwen3 else {}
    Qwen2VLImageProcessor(patch_size=PATCH, size=dict(shortest_edge=4 * side**2, longest_edge=30 * side**2),
                          **halves).save_pretrained(folder)
    if is_qwen3:
        add_names(folder, image_processor_type="Qwen2VLImageProcessorFast", processor_class="Qwen3VLProcessor")


def config_of(case):
    if case in CASES:
        model_type, tower, text = CASES[case]
        more = IDS
    elif case in PIXTRAL_CASES:
        model_type, tower, text, more = PIXTRAL_CASES[case]
        more = dict(more, image_token_index=36)
    else:
        model_type, tower, text, more, _ = TILE_CASES[case]
        more = dict(more, **{"image_token_id" if model_type in ("internvl", *IDEFICS) else "image_token_index": 36})
    return AutoConfig.for_model(model_type, text_config=text, vision_config=tower, **more)


def write(folder, case):
    os.makedirs(folder, exist_ok=True)
    config = config_of(case)
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
    if case in CASES:
        save_qwen_processor(folder, config.model_type)
    elif case in PIXTRAL_CASES:
        save_pixtral_processor(folder)
    else:
        TILE_CASES[case][-1].save_pretrained(folder)
    processor = load_processor(model, folder)
    images = dict(IMAGES, **MORE_IMAGES) if is_onevision(model) else IMAGES
    images = IMAGES_IDEFICS if config.model_type in IDEFICS else images
    for seed, (name, (height, width, mode)) in enumerate(images.items()):
        picture(height, width, mode, seed).save(os.path.join(folder, name))
    rows = [compute(model, processor, folder, row, seed)
            for seed, row in enumerate(ONEVISION_ROWS if is_onevision(model) else ROWS)]
    with open(os.path.join(folder, "golden.json"), "w") as file:
        json.dump(dict(rows=rows), file)
        file.write("\n")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for case in sys.argv[2:] or [*CASES, *PIXTRAL_CASES, *TILE_CASES]:
        write(os.path.join(sys.argv[1], case), case)


if __name__ == "__main__":
    main()
