#!/usr/bin/env python3
"""Turns the usage examples in header comments into C++ that the build compiles.

An example is a block of comment lines that are indented by two spaces or more:

    // Listener: accepts connections.
    //
    //   ASSIGN_OR_RETURN(Listener listener, Listen(port));

An empty line ends a block, as do list items, which are never examples. A block is code if one of its
lines ends in a semicolon; it becomes the body of a function. A block that opens with a function's head
stays one, and joins a class derived from `Base` if it overrides. `...` stands for an expression, or at
the end of a line for statements. Other blocks are text: a table, a drawing, a formula. Text that holds
a piece of C++ is an error, so that no example is left out.

An example sees what its header's namespace sees, and the names of the reader's own, which the folder's
file here (common/net.h for common/net/*.h) declares in the namespace STEM_example:

    namespace tandem::net::listener_example {
    extern int port;
    }

    generate.py               prints what there is; fails if a block is neither code nor text
    generate.py --out FOLDER  writes FOLDER/GROUP.cc for each group of folders, and FOLDER/depfile
"""
import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The folders whose examples are compiled as one, because what they include costs far more than they do;
# the longest path decides.
GROUPS = {
    "common": "common",
    "common/comm": "tensors",
    "common/device": "tensors",
    "common/model": "tensors",
    "common/weights": "tensors",
    "services": "trainer",
    "services/rollout": "rollout",
    "tools": "tools",
}

COMMENT = re.compile(r"^\s*//(?P<indent> *)(?P<text>.*?)\s*$")
LIST_ITEM = re.compile(r"^([-*]|\d+\.) ")
# Strings and characters, comments, `...` and all else.
TOKEN = re.compile(r"""(?P<keep>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|//.*|/\*.*?\*/)|(?P<dots>\.\.\.)|.""")
CPLUSPLUS = re.compile(r"ASSIGN_OR_RETURN|RETURN_IF_ERROR|\w->\w|\bstd::|\babsl::|\w\.\w+\(|^(const )?auto\b")
FUNCTION = re.compile(r"^(?!(?:if|for|while|switch|do|else|return)\b)[\w:<>,&*\s]+\s[\w:]+\([^;]*\)(?: const)?( override)? \{$")


class Block:
    """Consecutive indented comment lines. `line` is the number of the first."""

    def __init__(self, header, line):
        self.header = header
        self.line = line
        self.lines = []

    def place(self):
        return f"{self.header}:{self.line}"

    def is_code(self):
        return any(without_comment(line).endswith(";") for line in self.lines)

    def hidden_code(self):
        """The first piece of C++ in a block of text, or None."""
        for line in self.lines:
            found = CPLUSPLUS.search(line)
            if found:
                return found.group()
        return None


def without_comment(line):
    kept = [m.group() for m in TOKEN.finditer(line) if not m.group().startswith("//")]
    return "".join(kept).rstrip()


def blocks_of(header, text):
    """The indented blocks of a header's comments, without the items of lists."""
    found, block, in_list = [], None, False
    for number, line in enumerate(text.split("\n"), 1):
        comment = COMMENT.match(line)
        content = comment and comment["text"]
        if not content:
            block, in_list = None, False
        elif LIST_ITEM.match(content):
            block, in_list = None, True
        elif len(comment["indent"]) < 2:
            block, in_list = None, False
        elif not in_list:
            if block is None:
                block = Block(header, number)
                found.append(block)
            block.lines.append(comment["indent"] + content)
    return found


def replace_dots(line):
    """`...` at the end of a line is a statement, elsewhere an expression."""
    code = without_comment(line)
    if code.endswith("..."):
        line = line.replace(code, code[:-3] + ";", 1)
    return "".join("Any()" if m["dots"] else m.group() for m in TOKEN.finditer(line))


def group_of(header):
    return GROUPS[max((folder for folder in GROUPS if str(header).startswith(folder + "/")), key=len)]


def namespace_of(header):
    found = re.search(r"^namespace (tandem[\w:]*) \{", (ROOT / header).read_text(), re.MULTILINE)
    return found.group(1) if found else "tandem"


def source_of(blocks):
    """One translation unit with the examples of a group."""
    headers = list(dict.fromkeys(block.header for block in blocks))
    folders = dict.fromkeys(header.parent for header in headers)
    out = [f'#include "{header}"' for header in headers]
    out.append('#include "tests/header_examples/names.h"')
    out += [f'#include "tests/header_examples/{folder}.h"' for folder in folders if declarations(folder).exists()]
    for index, block in enumerate(blocks):
        code = [replace_dots(line) for line in block.lines]
        function = FUNCTION.match(code[0].strip())
        if not function:
            # Static and unused: the compiler checks it and generates no code.
            opening, closing = f"static Result Example{index}() {{", "}\n"
        elif function[1]:
            opening, closing = f"struct Example{index} : Base {{", "};\n"
        else:
            opening, closing = "", ""
        out.append(f"namespace {namespace_of(block.header)}::{block.header.stem}_example {{")
        out.append("using namespace ::tandem::header_examples;")
        out.append(f'{opening}\n#line {block.line} "{ROOT / block.header}"')
        out += code
        out.append(f'#line 1 "after the example of {block.header}"\n{closing}}}')
    return "\n".join(out) + "\n"


def declarations(folder):
    return HERE / folder.parent / (folder.name + ".h")


def unused_declarations(blocks):
    """Namespaces here whose header has no example."""
    used = {(block.header.parent, block.header.stem) for block in blocks}
    for file in sorted(HERE.rglob("*/*.h")):
        folder = file.relative_to(HERE).with_suffix("")
        for stem in re.findall(r"::(\w+)_example \{", file.read_text()):
            if (folder, stem) not in used:
                yield f"{file.relative_to(ROOT)}: {stem}_example: {folder}/{stem}.h has no example; remove it"


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_sources(out, code, read):
    for group, blocks in code.items():
        write_if_changed(out / f"{group}.cc", source_of(blocks))
    # A folder changes when a file joins or leaves it.
    ours = [HERE, *sorted(HERE.rglob("*.h")), *sorted(path for path in HERE.rglob("*") if path.is_dir())]
    depends = " \\\n ".join(str(path).replace(" ", "\\ ") for path in read + ours)
    (out / "depfile").write_text(f"{out}/{next(iter(code))}.cc: {depends}\n")


def report(code, text):
    """Prints what there is; returns whether every block is code or text."""
    everything = [block for blocks in code.values() for block in blocks]
    problems = [f"{block.place()}: a block of code has a line that ends in ';', and text holds no C++;"
                f" this block has no such line, but holds '{block.hidden_code()}'"
                for block in text if block.hidden_code()]
    problems += unused_declarations(everything)
    counts = ", ".join(f"{group} {len(blocks)}" for group, blocks in code.items())
    print(f"header examples: {len(everything)} compiled ({counts}); {len(text)} blocks are text, not code:")
    for block in text:
        print(f"  {block.place()}: {block.lines[0].strip()}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return not problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()

    read, text = [], []
    code = {group: [] for group in GROUPS.values()}
    for top in (folder for folder in GROUPS if "/" not in folder):
        headers = sorted((ROOT / top).rglob("*.h"))
        read += [ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir()), *headers]
        for path in headers:
            header = path.relative_to(ROOT)
            for block in blocks_of(header, path.read_text()):
                (code[group_of(header)] if block.is_code() else text).append(block)
    if args.out:
        write_sources(args.out, code, read)
        return 0
    return 0 if report(code, text) else 1


if __name__ == "__main__":
    sys.exit(main())
