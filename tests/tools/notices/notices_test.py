"""A dependency without a notice is found, wherever the build declares it."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/notices"))
import check  # noqa: E402

TABLE = """| library | version | licence | how | named by |
|---|---|---|---|---|
| Zstandard | 1.5.4 | BSD | linked | libzstd, libzstd-dev |
| PyTorch | 2.11.0 | BSD | installed | torch |
| grpcio | 1.71.0 | Apache-2.0 | clients | grpcio |
"""
SETUP = 'torch_version=2.11.0\npackages=(\n  # compression (data)\n  libzstd-dev\n)\ndownload_wheel "$work" "torch==$torch_version"\n'
CMAKE = "pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)\n"
REQUIREMENTS = "grpcio==1.71.0\n"


class Notices(unittest.TestCase):
    def problems(self, setup=SETUP, cmake=CMAKE, requirements=REQUIREMENTS):
        return list(check.problems(TABLE, setup, cmake, requirements))

    def test_a_complete_table_has_no_problems(self):
        self.assertEqual(self.problems(), [])

    def test_a_debian_package_without_a_row(self):
        (problem,) = self.problems(setup=SETUP + "packages+=(liblz4-dev)\n")
        self.assertIn("liblz4-dev has no row", problem)

    def test_a_library_that_cmake_finds_without_a_row(self):
        (problem,) = self.problems(cmake=CMAKE + "find_package(lz4 1.9 REQUIRED)\n")
        self.assertIn("lz4 has no row", problem)

    def test_a_python_package_without_a_row(self):
        (problem,) = self.problems(requirements=REQUIREMENTS + "numpy==2.0\n")
        self.assertIn("numpy has no row", problem)

    def test_a_wheel_of_another_version(self):
        (problem,) = self.problems(setup=SETUP.replace("2.11.0", "2.12.0"))
        self.assertIn("torch is version 2.12.0, but the row says 2.11.0", problem)

    def test_a_row_of_a_dependency_that_is_gone(self):
        (problem,) = self.problems(requirements="")
        self.assertIn("no build file names grpcio", problem)

    def test_this_project(self):
        sources = ("notices/third_party.md", "setup", "cmake/dependencies.cmake", "requirements.txt")
        texts = [(check.TOOLS / name).read_text() for name in sources]
        self.assertEqual(list(check.problems(*texts)), [])


if __name__ == "__main__":
    unittest.main()
