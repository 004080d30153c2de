// What the checks share: the programs that they start, and the folder for logs and models.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_TOOLS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_TOOLS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/tandem/gpu_check/check.h"
#include "tools/tandem/gpu_check/random_model.h"
#include "tools/tandem/gpu_check/run_child.h"

namespace tandem::gpu_check {

struct Tools {
  std::string bin;                    // folder of tandem and tandem-check-device
  std::string folder;                 // for logs, run folders and models
  std::function<bool()> interrupted;  // may be empty

  // Run `tandem ARGS` and `tandem-check-device ARGS`; `name` names the log.
  ChildOutput RunTandem(const std::string& name, std::vector<std::string> args,
                        absl::Time deadline) const;
  ChildOutput RunDevice(const std::string& name, std::vector<std::string> args,
                        absl::Time deadline) const;
  ChildOutput Run(const std::string& name, std::vector<std::string> argv,
                  absl::Time deadline) const;

  // The run_dir of a check's services, for --set, and what they say there.
  std::string RunDir(const std::string& name) const { return folder + "/" + name; }

  // The model's folder, which is written where it does not exist yet.
  absl::StatusOr<std::string> Model(const std::string& name, const ModelShape& shape) const;
};

// Adds to the result what the services in `run_dir` say: their devices to "devices", their warnings
// to what fell back. Fails it if one that should use the GPU used the CPU.
void AddServiceNotes(const std::string& run_dir, CheckResult& result);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_TOOLS_H_
