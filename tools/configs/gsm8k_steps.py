"""A small task of several turns out of GSM8K: the computations of a solution are given, and the policy
has the calculator do them one by one. Writes the rows, and a small model with a tokenizer for them.

usage: python3 tools/configs/gsm8k_steps.py ../shared/data/gsm8k runs/gsm8k_steps_data

A row of "48/2=<<48/2=24>>24 ... 48+24=<<48+24=72>>72 ... #### 72" is
    prompt   48/2;48+24:
    answer   <<48/2=24>><<48+24=72>>#### 72
Taken are solutions of one to three computations whose last one gives the answer.
"""
import json
import pathlib
import re
import sys

CHARACTERS = "0123456789.+-*/()=<>#;: "
SPECIAL = ["<pad>", "<eos>", "<unk>"]


def rows(path):
    for line in path.read_text().splitlines():
        solution, answer = json.loads(line)["answer"].split("#### ")
        steps = re.findall(r"<<([^<>=]+)=([^<>=]+)>>", solution)
        text = ";".join(expression for expression, _ in steps)
        if not 1 <= len(steps) <= 3 or len(text) > 24 or set(text) - set(CHARACTERS):
            continue
        # Results as the calculator writes them, and short ones.
        if any(not re.fullmatch(r"-?\d{1,4}(\.\d{1,2})?", result) for _, result in steps):
            continue
        if steps[-1][1] == answer.strip():
            calls = "".join(f"<<{expression}={result}>>" for expression, result in steps)
            yield {"prompt": text + ":", "answer": calls + "#### " + answer.strip()}


def write_model(folder):
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {text: i for i, text in enumerate([*SPECIAL, *CHARACTERS])}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "normalizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, text in enumerate(SPECIAL)],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated",
                          "invert": False},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128,
        "intermediate_size": 344, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": len(vocabulary), "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "initializer_range": 0.02, "eos_token_id": 1,
        "torch_dtype": "float32"}))


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    write_model(target / "model")
    for split, most in [("train", None), ("test", 200)]:
        found = list(rows(source / f"{split}.jsonl"))[:most]
        (target / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
        print(f"{target / split}.jsonl: {len(found)} rows")


if __name__ == "__main__":
    main()
