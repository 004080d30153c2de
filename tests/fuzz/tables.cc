// Parquet and Arrow files of rows. The first byte says which ending the file has.
#include <array>
#include <cstdint>

#include "tests/fuzz/input_folder.h"
#include "tools/tandem/dataset/row_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  if (size == 0) return 0;
  constexpr std::array<const char*, 3> kNames = {"rows.parquet", "rows.arrow", "rows.feather"};
  const std::string path = folder.Write(kNames[data[0] % kNames.size()], data + 1, size - 1);
  size_t num_rows = 0;
  (void)tandem::dataset::ForEachRow(path, [&](const tandem::io::JsonFields&) {
    return ++num_rows < 10000 ? absl::OkStatus() : absl::CancelledError("enough");
  });
  return 0;
}
