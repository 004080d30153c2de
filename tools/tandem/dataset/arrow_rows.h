// Rows of tables: Parquet files and Arrow's IPC files (.arrow, .feather, with or without footer).
//
// arrow_rows.cc reads them with Arrow's C++ libraries, which the build includes if tools/setup
// fetched them; otherwise no_arrow_rows.cc says what to do.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_ARROW_ROWS_H_
#define TANDEM_TOOLS_TANDEM_DATASET_ARROW_ROWS_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tools/tandem/dataset/row_reader.h"

namespace tandem::dataset {

// Whether a file is a table, by the ending of its name.
inline bool IsTable(absl::string_view path) {
  return absl::EndsWith(path, ".parquet") || absl::EndsWith(path, ".arrow") ||
         absl::EndsWith(path, ".feather");
}

// Like ForEachRow(). Columns become keys; nested columns become lists and objects.
absl::Status ForEachTableRow(const std::string& path, const RowVisitor& fn);

// Calls `fn` for the row that a reader made of row `number` (from 1) of a file without lines.
absl::Status VisitRow(const std::string& path, size_t number, const nlohmann::ordered_json& row,
                      const RowVisitor& fn);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_ARROW_ROWS_H_
