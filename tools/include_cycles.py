#!/usr/bin/env python3
"""Fails if folders of the source tree include each other's headers in a circle, and prints the includes.

A folder counts with its subfolders: common/model and common/model/layers are one."""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = re.compile(r'^#include "((?:common|services|tools)/[^"]+)"', re.MULTILINE)


def folder_of(path):
    """common/X, services/SERVICE/X or tools/tandem/X."""
    parts = pathlib.PurePath(path).parts[:-1]
    return "/".join(parts[:2] if parts[0] == "common" else parts[:3])


def read_includes():
    """For each folder, the folders that it includes, each with one include as evidence."""
    files = subprocess.run(["git", "ls-files", "common", "services", "tools"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    includes = collections.defaultdict(dict)
    for path in files:
        if path.endswith((".h", ".cc", ".cu")):
            for header in INCLUDE.findall((ROOT / path).read_text()):
                if folder_of(header) != folder_of(path):
                    includes[folder_of(path)].setdefault(folder_of(header), f"{path} includes {header}")
    return includes


def find_cycle(includes):
    """The folders of one cycle, the first again at the end; empty if there is none."""
    done = set()

    def visit(folder, way):
        if folder in way:
            return way[way.index(folder):] + [folder]
        if folder in done:
            return []
        for other in sorted(includes.get(folder, ())):
            cycle = visit(other, way + [folder])
            if cycle:
                return cycle
        done.add(folder)
        return []

    for folder in sorted(includes):
        cycle = visit(folder, [])
        if cycle:
            return cycle
    return []


def main():
    includes = read_includes()
    cycle = find_cycle(includes)
    for folder, other in zip(cycle, cycle[1:]):
        print(includes[folder][other], file=sys.stderr)
    return 1 if cycle else 0


if __name__ == "__main__":
    sys.exit(main())
