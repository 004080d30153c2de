// The files that data.train_files and data.test_files name: files, folders and patterns.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_DATA_FILES_H_
#define TANDEM_TOOLS_TANDEM_DATASET_DATA_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::dataset {

// Returns the files of one entry, in the order of their names: a file as it is, the data files in a
// folder and its subfolders, or those that a pattern matches (*, ?, [...]; in one folder). A pattern
// that matches folders and no data file means the data files in these. Skips files and folders whose
// name begins with a dot, and the descriptions that datasets.save_to_disk writes beside the rows.
// NOT_FOUND if there is none.
absl::StatusOr<std::vector<std::string>> ExpandDataFiles(const std::string& entry);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_DATA_FILES_H_
