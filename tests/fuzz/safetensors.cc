// A safetensors file: opened, and every byte of every tensor read.
#include "common/io/safetensors.h"

#include "tests/fuzz/input_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  const auto file =
      tandem::io::SafetensorsFile::Open(folder.Write("model.safetensors", data, size));
  if (!file.ok()) return 0;
  unsigned sum = 0;
  for (const auto& tensor : file->tensors()) {
    for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
  }
  static volatile unsigned sink;
  sink = sum;
  return 0;
}
