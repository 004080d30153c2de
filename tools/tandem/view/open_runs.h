// OpenRuns: opens the runs that the viewer's page compares.
#ifndef TANDEM_TOOLS_TANDEM_VIEW_OPEN_RUNS_H_
#define TANDEM_TOOLS_TANDEM_VIEW_OPEN_RUNS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/view/inspector.h"
#include "tools/tandem/view/run_reader.h"

namespace tandem::view {

struct ViewedRun {
  std::string name;  // unique: the folder's name, or its path if several have that name
  std::unique_ptr<RunReader> reader;
  std::unique_ptr<Inspector> inspector;  // uses the reader
};

// Each path is the folder of a run, or a folder of such folders; a run that is named twice is
// opened once. `inspect_program` is the path of tandem-inspect. NOT_FOUND if a path is neither,
// INVALID_ARGUMENT for more than 64 runs.
absl::StatusOr<std::vector<ViewedRun>> OpenRuns(const std::vector<std::string>& paths,
                                                const std::string& inspect_program);

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_OPEN_RUNS_H_
