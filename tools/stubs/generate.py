"""Writes the Python package `tandem`, the stubs of proto/, channels.py and calls.py, into a
folder: generate.py FOLDER. Needs the grpcio-tools of tools/requirements.txt; see tools/python."""

import pathlib
import shutil
import sys

import grpc_tools
from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parents[1] / "proto"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    protos = [str(path) for path in sorted((PROTO / "tandem").rglob("*.proto"))]
    code = protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={folder}",
                        f"--pyi_out={folder}", f"--grpc_python_out={folder}", *protos])
    if code != 0:
        raise SystemExit(f"protoc ended with {code}")
    for name in ("channels.py", "calls.py"):
        shutil.copy(HERE / name, folder / "tandem")


if __name__ == "__main__":
    main()
