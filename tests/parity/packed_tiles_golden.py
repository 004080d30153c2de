"""Golden file for tests/common/model/packed_tiles_test.cc: how LLaVA-OneVision packs images of many sizes.

usage: packed_tiles_golden.py OUTPUT        (needs torch, transformers)

OUTPUT gets "models", each with "side" (patches of a tile), "image_size", "pinpoints", "max_tiles" and
"images": [height, width, placeholders as transformers' processor counts them, mean of the rows]. The last is of what
transformers' pack_image_features() makes of the numbers 0, 1, ... in place of rows and -1 in place of the newline,
the i-th of them times i % 97.
"""
import json
import random
import sys
from types import SimpleNamespace

import torch
from transformers import LlavaOnevisionConfig
from transformers.models.llava_onevision.modeling_llava_onevision import LlavaOnevisionModel, image_size_to_num_patches
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor

PUBLISHED = LlavaOnevisionConfig().image_grid_pinpoints
MODELS = [dict(side=27, image_size=384, pinpoints=PUBLISHED, max_tiles=9),
          dict(side=4, image_size=18, pinpoints=[[18, 18], [18, 36], [36, 18], [36, 36], [18, 54], [72, 18]], max_tiles=9),
          dict(side=5, image_size=20, pinpoints=[[60, 60], [40, 120], [100, 20], [20, 140]], max_tiles=2)]
SIZES = [(1, 1), (1, 5000), (5000, 1), (384, 384), (768, 384), (383, 385), (480, 640), (640, 480), (1080, 1920),
         (4000, 3000), (2304, 2304), (100, 1000), (3, 7), (33, 1024)]


def count(model, height, width):
    counter = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
    counter.image_processor = SimpleNamespace(image_grid_pinpoints=model["pinpoints"])
    counter.num_image_tokens = model["side"] ** 2
    counter.vision_aspect_ratio = "anyres_max_%d" % model["max_tiles"]
    return counter._get_number_of_features(height, width, model["image_size"], model["image_size"])


def packed(model, height, width):
    """The weighted mean of the rows' numbers."""
    side = model["side"]
    config = SimpleNamespace(
        image_grid_pinpoints=model["pinpoints"],
        vision_config=SimpleNamespace(image_size=model["image_size"], patch_size=model["image_size"] // side))
    tiles = image_size_to_num_patches((height, width), model["pinpoints"], model["image_size"])
    rows = torch.arange(tiles * side**2, dtype=torch.float32).view(tiles, side**2, 1)
    features, _ = LlavaOnevisionModel.pack_image_features(
        SimpleNamespace(config=config), [rows], [(height, width)], image_newline=torch.tensor([-1.0]),
        vision_aspect_ratio="anyres_max_%d" % model["max_tiles"])
    numbers = features[0].flatten().double()
    assert len(numbers) == count(model, height, width), (model, height, width)
    return round((numbers * (torch.arange(len(numbers)) % 97)).mean().item(), 3)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = random.Random(1)
    for model in MODELS:
        most = 3 * max(max(pair) for pair in model["pinpoints"])
        sizes = SIZES + [(rng.randint(1, most), rng.randint(1, most)) for _ in range(60)]
        model["images"] = [[height, width, count(model, height, width), packed(model, height, width)]
                           for height, width in sizes]
    with open(sys.argv[1], "w") as file:
        json.dump(dict(models=MODELS), file)
        file.write("\n")


if __name__ == "__main__":
    main()
