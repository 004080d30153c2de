#!/usr/bin/env python3
"""Writes tests/common/tokenizer/golden/models.jsonl: what Hugging Face's tokenizers make of small Unigram,
WordPiece and BPE tokenizers, as SentencePiece and BERT families have them.

    python tests/parity/tokenizer_models_golden.py [--cases N] [--seed S] [--output FOLDER] [--charsmap NAME]

Needs tokenizers 0.23 and sentencepiece 0.2, which compiles the character map: by default one of the few rules
below, else SentencePiece's own by name (nmt_nfkc: 300 KB).
"""
import argparse
import base64
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_golden import ADDED, HERE, added, document, encode_cases, random_text, template_processing, word_level
from tokenizer_golden import pieces_of, write

CORPUS = ["the quick brown fox jumps over the lazy dog", "hello world, don't panic!", "naïve café déjà vu",
          "1234567890 2024", "words and words and other words", "unfortunately unhappy people sing singing songs",
          "你好世界 日本語", "Привет мир", "ﬁne ﬁsh ①②"] * 10
# Source and target code points: compositions, compatibility forms, removals, longer and shorter targets.
RULES = [("ﬁ", "fi"), ("①", "1"), ("②", "2"), ("Ａ", "A"), ("ａ", "a"), ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("㌀", "アパート"),
         ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u200b", ""), ("\u00ad", ""),
         ("e\u0301", "é"), ("a\u0300", "à"), ("İ", "i̇"), ("ﷺ", "صلى الله عليه وسلم"), ("…", "..."), ("½", "1/2"),
         ("A", "a"), ("\U0001f600", ":)"), ("\u1112\u1161\u11ab", "한"), ("ß", "ss"), ("²", "2"), ("ö", "o")]
TEXTS = ["", " ", "  two  spaces ", "ﬁsh ①② ｶﾞ ㌀…½", "e\u0301 a\u0300 a\u0301 A\u0301 ö\u0301 Ａ\u0301", "a\r\nb\rc\td", "x\u200by\u00adz",
         "İstanbul", "\U0001f600\U0001f601", "👩\u200d👩\u200d👧 🇩🇪🇫🇷", "한국 \u1112\u1161\u11ab", "ß²", "A\u0000B", "<unk>", "x<unk>y",
         "日本日本語é語", "unhappy singing", "word" * 9, "z" * 101, "don't do not . ? ! , ' s 've", "नमस्ते क्\u200dष", "\u0600A ©\u200dA",
         "a\u20dd1\ufe0f", "[MASK] [CLS]", "\U0010ffff\ue000", "tag: <a>b</a>", "_a__b_", "１２３", "ﾞ ガ カ\u3099", "ά ώ Ω"]


def protobuf_field(message, number):
    """The last field of that number, which holds bytes."""
    def varint(i):
        value, shift = 0, 0
        while message[i] & 0x80:
            value, shift, i = value | (message[i] & 0x7F) << shift, shift + 7, i + 1
        return value | message[i] << shift, i + 1

    found, i = b"", 0
    while i < len(message):
        tag, i = varint(i)
        kind = tag & 7
        if kind == 0:
            _, i = varint(i)
            continue
        size, i = varint(i) if kind == 2 else ({1: 8, 5: 4}[kind], i)
        if tag >> 3 == number:
            found = message[i:i + size]
        i += size
    return found


def charsmap(name):
    """SentencePiece's compiled character map."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"normalization_rule_name": name}
        if name == "rules":
            tsv = pathlib.Path(folder, "rules.tsv")
            hexes = lambda s: " ".join(f"{ord(c):X}" for c in s)
            tsv.write_text("".join(f"{hexes(a)}\t{hexes(b)}\n" for a, b in RULES))
            options = {"normalization_rule_tsv": str(tsv)}
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=90,
                                                 minloglevel=2, hard_vocab_limit=False, **options)
    normalizer_spec = protobuf_field(out.getvalue(), 3)
    return base64.b64encode(protobuf_field(normalizer_spec, 2)).decode()


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(list_name, *steps):
    return {"type": "Sequence", list_name: list(steps)}


def metaspace(scheme="always"):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}


def unigram(byte_fallback, seed):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=120, show_progress=False, unk_token="<unk>",
                                                          special_tokens=["<pad>", "</s>", "<unk>"]))
    model = json.loads(t.to_str())["model"]
    # The trainer's scores depend on the order of a hash table; round ones do not, and they make ties.
    r = random.Random(seed)
    vocab = sorted((token for token, _ in model["vocab"]), key=lambda s: (not s.startswith("<"), s))
    model["vocab"] = [[token, 0.0 if token.startswith("<") else -r.randrange(4, 40) / 4] for token in vocab]
    model["vocab"] += [["do", -1.5], ["▁do", -1.5], ["not", -2], ["ngs", -1e300], ["語é", -9.5]]
    if byte_fallback:
        model["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    model["byte_fallback"] = byte_fallback
    model["unk_id"] = vocab.index("<unk>")
    return model


def word_piece(**options):
    """The words' beginnings and continuations of some lengths; the trainer's choice among equals is random."""
    words = {word for line in CORPUS + ["naive cafe deja", "你 好 世 界 日 本 語"] for word in line.split()}
    pieces = {word[:n] for word in words for n in (1, 3, 5)}
    pieces |= {"##" + word[i:i + n] for word in words for i in range(1, len(word)) for n in (1, 3)}
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(pieces)
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(tokens)}, "unk_token": "[UNK]",
             "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return dict(model, **options)


def bert(**options):
    fields = dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    return dict(fields, **options)


def bpe_of_characters(byte_fallback):
    """Gemma's: spaces are characters of words, bytes stand for what is unknown."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    t.train_from_iterator(CORPUS[:9], trainers.BpeTrainer(vocab_size=150, show_progress=False,
                                                          special_tokens=["<pad>", "<unk>", "<bos>"]))
    model = json.loads(t.to_str())["model"]
    for b in range(256):
        model["vocab"][f"<0x{b:02X}>"] = len(model["vocab"])
    return dict(model, byte_fallback=byte_fallback, fuse_unk=True, unk_token="<unk>")


def tokenizers_of_families(map_base64):
    precompiled = {"type": "Precompiled", "precompiled_charsmap": map_base64}
    llama_decoder = sequence("decoders", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"})
    bert_processing = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    word_piece_decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    bert_tokens = [added(t, i, special=True) for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])]
    bert_tokens[4]["lstrip"] = True
    plain = unigram(False, 1)
    yield "unigram_t5", document(plain, normalizer=precompiled, pre_tokenizer=metaspace(), decoder=metaspace(),
                                 post_processor=template_processing("</s>", 1),
                                 tokens=[added("<pad>", 1, special=True), added("</s>", 0, special=True)])
    yield "unigram_xlm_r", document(
        unigram(False, 2), normalizer=sequence("normalizers", precompiled, replace({"Regex": " {2,}"}, " ")),
        pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace()), decoder=metaspace(),
        post_processor={"type": "RobertaProcessing", "sep": ["</s>", 0], "cls": ["<pad>", 1], "trim_offsets": True,
                        "add_prefix_space": True})
    yield "unigram_byte_fallback", document(
        unigram(True, 3), normalizer=replace({"String": " "}, "▁"), decoder=llama_decoder, tokens=ADDED[1:4])
    untyped = {k: v for k, v in plain.items() if k not in ("type", "byte_fallback")}
    yield "unigram_untyped", document(untyped, pre_tokenizer=metaspace("first"))
    yield "word_piece_bert", document(word_piece(), normalizer=bert(), pre_tokenizer={"type": "BertPreTokenizer"},
                                      decoder=word_piece_decoder, post_processor=bert_processing, tokens=bert_tokens)
    yield "word_piece_cased", document(
        word_piece(max_input_chars_per_word=6), normalizer=bert(lowercase=False, handle_chinese_chars=False),
        pre_tokenizer={"type": "BertPreTokenizer"}, decoder=dict(word_piece_decoder, cleanup=False))
    yield "word_piece_other_prefix", document(
        word_piece(continuing_subword_prefix="", unk_token="[PAD]"), normalizer=bert(clean_text=False, strip_accents=True),
        pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": " "})
    yield "bpe_gemma", document(
        bpe_of_characters(True), normalizer=replace({"String": " "}, "▁"),
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        decoder=llama_decoder, post_processor=template_processing("<bos>", 2),
        tokens=[added("<bos>", 2, special=True), added("<a>", 0)])
    yield "bpe_without_bytes", document(bpe_of_characters(False), pre_tokenizer={"type": "FixedLength", "length": 7},
                                        decoder={"type": "BPEDecoder", "suffix": "e"})


def normalizers(map_base64):
    yield "precompiled", {"type": "Precompiled", "precompiled_charsmap": map_base64}
    yield "bert_cleaning", bert(strip_accents=False, lowercase=False)
    yield "bert_accents", bert(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    yield "strip_accents", {"type": "StripAccents"}
    yield "strip_accents_nfd", sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"})
    yield "nmt", {"type": "Nmt"}
    yield "byte_level", {"type": "ByteLevel"}


def decoders():
    yield "word_piece", {"type": "WordPiece", "prefix": "##", "cleanup": True}
    yield "word_piece_plain", {"type": "WordPiece", "prefix": "##", "cleanup": False}
    yield "bpe", {"type": "BPEDecoder", "suffix": "</w>"}
    yield "bpe_fused", sequence("decoders", {"type": "BPEDecoder", "suffix": "a"}, {"type": "Fuse"},
                                replace({"String": " b"}, "-"))
    yield "word_piece_bytes", sequence("decoders", {"type": "ByteFallback"}, {"type": "WordPiece", "prefix": "##", "cleanup": True})


def goldens(r, n, map_base64):
    texts = lambda fixed=len(TEXTS): r.sample(TEXTS, fixed) + [random_text(r) + r.choice(["", " " + r.choice(CORPUS)]) for _ in range(n)]
    out = []
    for name, doc in tokenizers_of_families(map_base64):
        out.append({"name": name, **encode_cases(doc, texts())})
    for name, normalizer in normalizers(map_base64):
        chosen = texts(len(TEXTS) if name == "precompiled" else 14)
        doc = document(word_level(()), normalizer=normalizer)
        doc["model"] = word_level(pieces_of(doc, chosen))
        out.append({"name": "normalizer_" + name, **encode_cases(doc, chosen)})
    tokens = ["a", "##a", "##", "b</w>", "</w>", "</w></w>", ".", "'", "n't", "##n't", " do not", "do", "not", "'s", "a .", "",
              "<0xE4>", "<0x41>", "▁", "aa", " ' "]
    for name, decoder in decoders():
        doc = document({"type": "WordLevel", "vocab": {t: i for i, t in enumerate(tokens)}, "unk_token": "a"},
                       decoder=decoder, tokens=[added("<s>", len(tokens), special=True)])
        t = Tokenizer.from_str(json.dumps(doc))
        cases = []
        for _ in range(n + 5):
            ids = [r.randrange(len(tokens) + 2) for _ in range(r.randint(1, 9))]
            ids.append(0)  # the reference's BPEDecoder panics on an empty list
            cases.append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False),
                          "text_without_special": t.decode(ids, skip_special_tokens=True)})
        out.append({"name": "decoder_" + name, "tokenizer": doc, "vocab_size": t.get_vocab_size(True), "decode": cases})
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parent / "common/tokenizer/golden")
    parser.add_argument("--charsmap", default="rules")
    args = parser.parse_args()
    write(args.output / "models.jsonl",
          [{"made_by": f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}",
            "seed": args.seed}] + goldens(random.Random(args.seed), args.cases, charsmap(args.charsmap)))


if __name__ == "__main__":
    main()
