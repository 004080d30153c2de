// Runs a program under a deadline and reads the JSON objects that it prints, one a line. A program
// that crashes or hangs is an error with the end of what it wrote.
//
//   const ChildOutput output = RunChild({.argv = {bin + "/tandem", "bench", "train", ...},
//                                        .log_path = folder + "/train.log",
//                                        .deadline = deadline});
//   if (output.status.ok()) Use(output.objects.back());
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHILD_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHILD_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace tandem::gpu_check {

struct ChildCommand {
  std::vector<std::string> argv;  // argv[0] is a path, or a name to look up in PATH
  std::map<std::string, std::string> environment;
  std::string log_path;  // gets stdout and stderr; an earlier file is removed
  absl::Time deadline = absl::InfiniteFuture();
  // Polled; true ends the program. May be empty.
  std::function<bool()> interrupted;
};

struct ChildOutput {
  // OK if the program exited with 0. DEADLINE_EXCEEDED and CANCELLED if it was ended. Messages hold
  // the last lines of its log.
  absl::Status status;
  std::vector<nlohmann::json> objects;
};

// The program and all that it started have ended on return.
ChildOutput RunChild(const ChildCommand& command);

// The lines of `text` that are JSON objects.
std::vector<nlohmann::json> ObjectsOf(const std::string& text);

// The last lines of `text` that are no JSON objects, at most `count`, separated by "\n".
std::string LastLines(const std::string& text, int count);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHILD_H_
