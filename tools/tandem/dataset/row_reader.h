// Reads the rows of a data file, in the format that its name ends with.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_ROW_READER_H_
#define TANDEM_TOOLS_TANDEM_DATASET_ROW_READER_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/io/json_fields.h"

namespace tandem::dataset {

using RowVisitor = std::function<absl::Status(const io::JsonFields& row)>;

// Calls `fn` for each row, in order; stops at its first error. The row's place is "FILE:LINE", or
// "FILE: row N", counted from 1, in files without lines; it is prepended to errors of `fn`. By the
// name's ending:
//   - .jsonl, and any ending not named here: one JSON object a line;
//   - .json: a list of objects, or one object a line;
//   - .parquet, .arrow and .feather: tables (arrow_rows.h);
//   - .gz and .zst after the endings of JSON: compressed.
// INVALID_ARGUMENT for bytes that are not in the format, DATA_LOSS for a compressed file that ends
// early, UNIMPLEMENTED for tables in a build without Arrow.
absl::Status ForEachRow(const std::string& path, const RowVisitor& fn);

// Whether a name ends like data: files in folders with other names are not rows.
bool IsDataFile(absl::string_view path);
// Those endings, for messages.
std::string DataFileEndings();

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_ROW_READER_H_
