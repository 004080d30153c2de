"""The digit task's model with another number of layers, to be trained from random weights.

usage: python3 tools/configs/digit_completion_layers.py ../shared/data/models/digit-completion LAYERS FOLDER
"""
import json
import pathlib
import shutil
import sys

source, layers, folder = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
for name in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"]:
    shutil.copyfile(source / name, folder / name)
config = json.loads((source / "config.json").read_text())
config["num_hidden_layers"] = layers
(folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
