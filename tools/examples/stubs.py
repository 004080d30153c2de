"""Python stubs of proto/, made by grpcio-tools into a temporary folder when this module is imported.

    import stubs  # before the first import of tandem.*
    from tandem.rollout.v1 import rollout_service_pb2 as rollout
"""

import atexit
import pathlib
import shutil
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _generate():
    folder = tempfile.mkdtemp(prefix="tandem-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    protos = [str(path) for path in sorted((ROOT / "proto/tandem").rglob("*.proto"))]
    code = protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={folder}",
                        f"--grpc_python_out={folder}", *protos])
    if code != 0:
        raise RuntimeError(f"protoc ended with {code}")
    sys.path.insert(0, folder)


_generate()
