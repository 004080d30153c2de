"""Checks that third_party.md has a row for every dependency, with the pinned version, and no row for
something else: check.py

Reads what the build declares: the Debian packages and wheels of tools/setup, find_package() and
pkg_check_modules() of dependencies.cmake, and tools/requirements.txt.
"""

import pathlib
import re

TOOLS = pathlib.Path(__file__).resolve().parents[1]


def notices(text):
    """Name -> version of each dependency that a row of the table names."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[0] != "library" and not set(cells[0]) <= {"-"}:
            for name in cells[4].split(","):
                found[name.strip()] = cells[1]
    return found


def of_setup(text):
    """Name -> pinned version ("" if Debian's) of each package and wheel."""
    found = {}
    text = re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE)  # comments may have parentheses
    for block in re.findall(r"\bpackages\+?=\(([^)]*)\)", text):
        found.update((name, "") for name in block.split())
    versions = dict(re.findall(r"^(\w+)=([\w.]+)", text, re.MULTILINE))
    for name, variable in re.findall(r'"([\w-]+)==\$(\w+)"', text):
        found[name] = versions[variable]
    for block in re.findall(r"^cuda_libraries=\(([^)]*)\)", text, re.MULTILINE):
        found.update(pin.split("==") for pin in block.split())
    found.update((name, "") for name in re.findall(r"apt-get download -qq ([\w-]+)", text))
    return found


def of_cmake(text):
    found = re.findall(r"find_package\((\S+)", text)
    found += re.findall(r"find_library\(\w+ (\w+)", text)
    found += re.findall(r"pkg_check_modules\(.*?(\S+)\)", text)
    return {name: "" for name in found}


def of_requirements(text):
    return dict(re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE))


def problems(table, setup, cmake, requirements):
    """One line per difference between the table and the declarations."""
    declared = {**of_setup(setup), **of_cmake(cmake), **of_requirements(requirements)}
    have = notices(table)
    for name, version in declared.items():
        if name not in have:
            yield f"{name} has no row; add its library, version and licence"
        elif version and have[name] != version:
            yield f"{name} is version {version}, but the row says {have[name]}"
    for name in have.keys() - declared.keys():
        yield f"no build file names {name}; remove it from its row"


def main():
    sources = ("notices/third_party.md", "setup", "cmake/dependencies.cmake", "requirements.txt")
    found = sorted(problems(*((TOOLS / name).read_text() for name in sources)))
    for problem in found:
        print(f"tools/notices/third_party.md: {problem}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
