// What the services of a check say in their logs: which device each computed on, and warnings,
// which tell what ran in another way than planned.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_SERVICE_NOTES_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_SERVICE_NOTES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::gpu_check {

struct ServiceNotes {
  std::map<std::string, std::string>
      devices;                        // by process: {"trainer-0", "cuda:0, NVIDIA H100, ..."}
  std::vector<std::string> warnings;  // "rollout-0: capturing a CUDA graph failed; ..."

  // The first process that computed on a CPU; empty if none did.
  std::string process_on_cpu() const;
};

// Adds what the log of `process` says. Lines are those of common/telemetry/log.h.
void ReadServiceLog(absl::string_view process, absl::string_view log, ServiceNotes& notes);

// Reads `run_dir`/logs/*.log.
ServiceNotes ReadServiceNotes(const std::string& run_dir);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_SERVICE_NOTES_H_
