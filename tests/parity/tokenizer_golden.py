#!/usr/bin/env python3
"""Writes tests/common/tokenizer/golden: what Hugging Face's tokenizers and transformers make of small
tokenizers, random Unicode texts and templates.

    python tests/parity/tokenizer_golden.py [--cases N] [--seed S] [--output FOLDER]

Needs tokenizers 0.23 and transformers 5 (their versions are written into the files). A tokenizer whose
pieces matter gets a WordLevel vocabulary of just the pieces that the reference cuts, so that its ids
show the cuts.
"""
import argparse
import json
import pathlib
import random

import tokenizers
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).resolve().parent

POOLS = [
    [ord(c) for c in "abcdefghijklmnop     ABCXYZ0123456789'.,!?-_\n\t\r"],
    list(range(0x20, 0x250)),
    list(range(0x300, 0x370)) + [0x61, 0x65, 0x1112, 0x1161, 0x11A8],
    list(range(0x600, 0x700)) + list(range(0x900, 0xA00)),
    list(range(0x4E00, 0x4F00)) + [0x3000, 0x3002],
    list(range(0xAC00, 0xAC80)) + list(range(0x1100, 0x1200)),
    list(range(0x1F300, 0x1F700)) + [0x200D, 0xFE0F],
    [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x180E, 0x1680, 0x2003, 0x2028, 0x200B, 0x202F, 0x3000, 65],
    [0x1C89, 0xA7CB, 0x105C0, 0x10D40, 0x10D69, 0x11F50, 0x1E030, 0x31350, 0x13460, 0x1FAE8, 0x897,
     0x1B4E, 0x11DE0, 0x16EA0, 0x130, 0x1E9E, 0x166D, 0x24B6, 0xB2, 0xBC, 65, 32, 48],
    [0x27, 0x73, 0x17F, 0x53, 0x54, 0x74, 0x4C, 0x6C, 0x44, 0x64, 0x72, 0x65, 0x212A, 32, 97],
    [0x2581, 32, 97, 98, 45, 0x2581],
    [c for c in range(1, 0x30000) if not 0xD800 <= c < 0xE000],
]
SNIPPETS = ["<a>", "<b>", "<c> ", " <d>", "x<d>y", "<e>", "  <b>  ", "word", "it's We'LL", "\r\n", "--", "a-b--c",
            "123 4567", " \n ", "<0x41>", "\u2581\u2581a", "le", "don't", "hello world", "ﬁ ①", "é"]


def random_text(r):
    out = []
    for _ in range(r.randint(0, 5)):
        if r.random() < 0.35:
            out.append(r.choice(SNIPPETS))
        else:
            pool = r.choice(POOLS)
            out.append("".join(chr(r.choice(pool)) for _ in range(r.randint(1, r.choice([3, 10])))))
    return "".join(out)


def added(content, id, **flags):
    token = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False,
                 special=False)
    token.update(flags)
    return token


ADDED = [added("<a>", 0, special=True), added("<b>", 1, lstrip=True, rstrip=True),
         added("<c>", 2, single_word=True, special=True), added("<d>", 3, normalized=True),
         added("<e>", 9, normalized=True, special=True, lstrip=True)]


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
MIXED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PIECES = {
    "whitespace": {"type": "Whitespace"},
    "whitespace_split": {"type": "WhitespaceSplit"},
    "digits": {"type": "Digits", "individual_digits": True},
    "digits_together": {"type": "Digits", "individual_digits": False},
    "punctuation": {"type": "Punctuation", "behavior": "Isolated"},
    "punctuation_contiguous": {"type": "Punctuation", "behavior": "Contiguous"},
    "punctuation_removed": {"type": "Punctuation", "behavior": "Removed"},
    "punctuation_previous": {"type": "Punctuation", "behavior": "MergedWithPrevious"},
    "punctuation_next": {"type": "Punctuation", "behavior": "MergedWithNext"},
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace_first": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
    "metaspace_never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "metaspace_whole": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": False},
    "byte_level": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "split_qwen": split({"Regex": QWEN}, "Isolated"),
    "split_llama3": split({"Regex": LLAMA}, "Isolated"),
    "split_mixed_case": split({"Regex": MIXED}, "Isolated"),
    "split_dot": split({"Regex": "."}, "Isolated"),
    "split_words": split({"Regex": r"\w+|[^\w\s]+"}, "Removed", True),
    "split_not_words": split({"Regex": r"\W+"}, "MergedWithPrevious"),
    "split_boundaries": split({"Regex": r"\b"}, "Isolated"),
    "split_lines": split({"Regex": r"^.|.$"}, "Isolated"),
    "split_classes": split({"Regex": r"[^\S\r\n]+|[\d\-x]+|[[:punct:]a-c]"}, "Isolated"),
    "split_sets": split({"Regex": r"[\p{L}&&[^\p{Lu}a-f]]+|[[0-3][x-z]]+|\p{Han}+|\h{2}"}, "Isolated"),
    "split_counted": split({"Regex": r"\p{N}{1,3}+|[a-c]{,2}d|(?:é|e){2}+"}, "Contiguous"),
    "split_case": split({"Regex": r"(?i)[a-k]+|\p{Ll}+"}, "MergedWithNext"),
    "split_string": split({"String": "a"}, "MergedWithPrevious"),
    "split_string_next": split({"String": "-"}, "MergedWithNext"),
    "split_string_contiguous": split({"String": "-"}, "Contiguous"),
    "sequence": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "Digits", "individual_digits": True}]},
}
NORMALIZERS = {
    "nfc": {"type": "NFC"},
    "nfd": {"type": "NFD"},
    "nfkc": {"type": "NFKC"},
    "nfkd": {"type": "NFKD"},
    "lowercase": {"type": "Lowercase"},
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip_right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "prepend": {"type": "Prepend", "prepend": "▁"},
    "replace_string": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "replace_regex": {"type": "Replace", "pattern": {"Regex": r"\s+|(l)(e)"}, "content": "$1 _"},
    "normalizers": {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "NFKC"}, {"type": "Lowercase"},
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
}
DECODERS = {
    "fuse": {"type": "Fuse"},
    "byte_level": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "llama": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "strip_tokens": {"type": "Strip", "content": "a", "start": 1, "stop": 2},
    "strip_fused": {"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 3}]},
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace_never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "replace_regex": {"type": "Replace", "pattern": {"Regex": "[aeiou]+"}, "content": "*"},
    "replace_fused": {"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "ab"}, "content": "-"}]},
    "none": None,
}


def document(model, normalizer=None, pre_tokenizer=None, decoder=None, post_processor=None, tokens=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens),
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
            "decoder": decoder, "model": model}


def word_level(pieces):
    return {"type": "WordLevel", "vocab": {p: i for i, p in enumerate(["<unk>"] + sorted(pieces))},
            "unk_token": "<unk>"}


def encode_cases(doc, texts):
    t = Tokenizer.from_str(json.dumps(doc))
    cases = []
    for text in texts:
        ids = t.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": ids, "plain": t.encode(text, add_special_tokens=False).ids,
                      "decoded": t.decode(ids, skip_special_tokens=False)})
    return {"tokenizer": doc, "vocab_size": t.get_vocab_size(True), "encode": cases}


def pieces_of(doc, texts):
    """Every piece that the tokenizer could cut from the texts, added tokens or not."""
    probe = Tokenizer.from_str(json.dumps(dict(doc, added_tokens=[])))
    out = set()
    for text in texts:
        for part in {text, *text.replace("<a>", "\0").replace("<b>", "\0").replace("<d>", "\0").split("\0")}:
            s = probe.normalizer.normalize_str(part) if probe.normalizer else part
            if probe.pre_tokenizer:
                out.update(p for p, _ in probe.pre_tokenizer.pre_tokenize_str(s))
            else:
                out.add(s)
    out.discard("")
    out.discard("<unk>")
    return out


def trained(texts, byte_level, **options):
    t = Tokenizer(models.BPE(**options.pop("model", {})))
    t.pre_tokenizer = pre_tokenizers.ByteLevel() if byte_level else pre_tokenizers.WhitespaceSplit()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=600, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [], **options))
    return json.loads(t.to_str())["model"]


def template_processing(prefix, id):
    special = {"SpecialToken": {"id": prefix, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [special, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [special, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {prefix: {"id": prefix, "ids": [id], "tokens": [prefix]}}}


def tokenizer_goldens(r, n):
    out = []
    for name, pre_tokenizer in PIECES.items():
        texts = [random_text(r) for _ in range(n)]
        doc = document(None, pre_tokenizer=pre_tokenizer)
        doc["model"] = word_level(())
        doc["model"] = word_level(pieces_of(doc, texts))
        out.append({"name": "pieces_" + name, **encode_cases(doc, texts)})
    for name, normalizer in NORMALIZERS.items():
        texts = [random_text(r) for _ in range(n)]
        doc = document(word_level(()), normalizer=normalizer)
        doc["model"] = word_level(pieces_of(doc, texts))
        out.append({"name": "normalizer_" + name, **encode_cases(doc, texts)})
    for name, normalizer in (("plain", None), ("lowercase", {"type": "Lowercase"}),
                             ("metaspace", NORMALIZERS["normalizers"])):
        texts = [random_text(r) for _ in range(n)]
        doc = document(word_level(()), normalizer=normalizer, pre_tokenizer=PIECES["metaspace_first"])
        pieces = pieces_of(doc, texts)
        doc["model"] = word_level(pieces)
        doc["added_tokens"] = ADDED
        out.append({"name": "added_tokens_" + name, **encode_cases(doc, texts)})
    corpus = ["the quick brown fox jumps over the lazy dog", "hello world, don't panic!", "naïve café déjà vu",
              "1234567890 2024", "words and words and other words"] * 20
    texts = lambda: [random_text(r) + r.choice(["", " " + r.choice(corpus)]) for _ in range(n)]
    bpe = trained(corpus, True)
    out.append({"name": "bpe_byte_level", **encode_cases(document(
        bpe, pre_tokenizer=PIECES["byte_level"], decoder=DECODERS["byte_level"], tokens=ADDED[:2],
        post_processor={"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            template_processing("<a>", 0)]}), texts())})
    untyped = {k: v for k, v in bpe.items() if k != "type"}
    untyped["merges"] = [" ".join(m) if isinstance(m, list) else m for m in untyped["merges"]]
    out.append({"name": "bpe_without_type", **encode_cases(document(
        untyped, pre_tokenizer=PIECES["byte_level"], decoder=DECODERS["byte_level"]), texts())})
    out.append({"name": "bpe_ignore_merges", **encode_cases(document(
        dict(bpe, ignore_merges=True, merges=bpe["merges"][: len(bpe["merges"]) // 2]),
        pre_tokenizer=PIECES["byte_level"], decoder=DECODERS["byte_level"]), texts())})
    affixed = trained(corpus, False, continuing_subword_prefix="##", end_of_word_suffix="</w>",
                      special_tokens=["<unk>"])
    for fuse in (True, False):
        model = dict(affixed, unk_token="<unk>", fuse_unk=fuse, continuing_subword_prefix="##",
                     end_of_word_suffix="</w>")
        out.append({"name": f"bpe_affixes_fuse_{fuse}", **encode_cases(document(
            model, pre_tokenizer=PIECES["whitespace_split"]), texts())})
    plain = trained(corpus, False, special_tokens=["<unk>"])
    for name, some_bytes in (("all", range(256)), ("some", range(0x20, 0xC8))):
        vocab = dict(plain["vocab"])
        for b in some_bytes:
            vocab.setdefault(f"<0x{b:02X}>", len(vocab))
        vocab.setdefault("▁", len(vocab))
        model = dict(plain, vocab=vocab, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
        out.append({"name": f"bpe_byte_fallback_{name}", **encode_cases(document(
            model, normalizer={"type": "Sequence", "normalizers": [NORMALIZERS["prepend"],
                                                                   NORMALIZERS["replace_string"]]},
            decoder=DECODERS["llama"], post_processor=template_processing("<unk>", vocab["<unk>"])), texts())})
    tokens = ["a", "b", " ", "  ", "▁", "▁a", "▁▁", "ab", "aa", "aaa", "Ġ", "Ġa", "Ã", "©", "ð", "Ł", "ĺ", "Ģ", "é", "x y",
              "<0xE4>", "<0xB8>", "<0xAD>", "<0xf0>", "<0x+5>", "<0x4>", "<0xZZ>", "<0x41>", "\n", "中"]
    for name, decoder in DECODERS.items():
        doc = document({"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": "a"},
                       decoder=decoder, tokens=[added("<s>", len(tokens), special=True)])
        t = Tokenizer.from_str(json.dumps(doc))
        cases = []
        for _ in range(2 * n):
            ids = [r.randrange(len(tokens) + 2) for _ in range(r.randint(0, 9))]
            try:
                cases.append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False),
                              "text_without_special": t.decode(ids, skip_special_tokens=True)})
            except BaseException as error:  # the reference's Strip panics on a token shorter than `stop`
                if type(error).__name__ != "PanicException":
                    raise
        out.append({"name": "decoder_" + name, "tokenizer": doc, "vocab_size": t.get_vocab_size(True),
                    "decode": cases})
    return out


def template_goldens():
    context = json.loads((HERE / "templates_context.json").read_text())
    blocks = (HERE / "templates.jinja").read_text().split("\n=====\n")
    out = []
    for block in blocks:
        try:
            out.append({"template": block, "rendered": _compile_jinja_template(block).render(**context)})
        except Exception as error:  # noqa: BLE001: whatever the reference raises
            out.append({"template": block, "error": f"{type(error).__name__}: {error}"})
    return [{"context": context}] + out


def write(path, rows):
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, len(rows), "rows")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parent / "common/tokenizer/golden")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    write(args.output / "tokenizers.jsonl",
          [{"made_by": f"tokenizers {tokenizers.__version__}", "seed": args.seed}]
          + tokenizer_goldens(random.Random(args.seed), args.cases))
    write(args.output / "templates.jsonl",
          [{"made_by": f"transformers {transformers.__version__}"}] + template_goldens())


if __name__ == "__main__":
    main()
