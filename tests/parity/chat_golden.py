#!/usr/bin/env python3
"""Writes tests/common/tokenizer/golden/chats.jsonl: chat_templates.jinja, which has the idioms of published chat
templates, rendered by transformers for the conversations of chat_conversations.json.

    python tests/parity/chat_golden.py [--output FOLDER] [--published FILE.jinja ...]

--published adds templates that models come with, to compare them without keeping them here.
"""
import argparse
import json
import pathlib

import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).resolve().parent


def contexts():
    """What RenderChat() gives a template."""
    data = json.loads((HERE / "chat_conversations.json").read_text())
    for chat in data["chats"]:
        tools = data["tools"] if chat.pop("with_tools", False) else None
        yield {"bos_token": "<s>", "eos_token": "</s>", "documents": None, "tools": tools, **chat}


def rendered(template, context):
    try:
        return _compile_jinja_template(template).render(**json.loads(json.dumps(context)))
    except Exception:  # noqa: BLE001: whatever the reference raises
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=HERE.parent / "common/tokenizer/golden")
    parser.add_argument("--published", type=pathlib.Path, nargs="*", default=[])
    args = parser.parse_args()
    chats = list(contexts())
    templates = (HERE / "chat_templates.jinja").read_text().split("\n=====\n")
    templates += [path.read_text() for path in args.published]
    rows = [{"made_by": f"transformers {transformers.__version__}"}, {"contexts": chats}]
    rows += [{"template": t, "rendered": [rendered(t, chat) for chat in chats]} for t in templates]
    path = args.output / "chats.jsonl"
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    print(path, len(rows), "rows,", sum(text is not None for row in rows[2:] for text in row["rendered"]), "rendered")


if __name__ == "__main__":
    main()
