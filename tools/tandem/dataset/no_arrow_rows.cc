// Stands in for arrow_rows.cc in a build without Arrow's libraries.
#include "absl/strings/str_cat.h"
#include "tools/tandem/dataset/arrow_rows.h"

namespace tandem::dataset {

absl::Status ForEachTableRow(const std::string& path, const RowVisitor&) {
  return absl::UnimplementedError(
      absl::StrCat(path,
                   ": this build reads no Parquet or Arrow files; run tools/setup and "
                   "build again, or write the rows as .jsonl"));
}

}  // namespace tandem::dataset
