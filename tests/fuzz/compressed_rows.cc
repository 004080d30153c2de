// Rows that gzip or zstd compressed. The first byte says which, and whether they are a list.
#include <array>
#include <cstdint>

#include "tests/fuzz/input_folder.h"
#include "tools/tandem/dataset/row_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  if (size == 0) return 0;
  constexpr std::array<const char*, 4> kNames = {"rows.jsonl.gz", "rows.jsonl.zst", "rows.json.gz",
                                                 "rows.json.zst"};
  const std::string path = folder.Write(kNames[data[0] % kNames.size()], data + 1, size - 1);
  (void)tandem::dataset::ForEachRow(path,
                                    [](const tandem::io::JsonFields&) { return absl::OkStatus(); });
  return 0;
}
