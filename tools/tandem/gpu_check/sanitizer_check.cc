// NVIDIA's compute-sanitizer on the comparisons of kernels, with small inputs.
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

constexpr const char* kSanitizer = "compute-sanitizer";

bool IsOnPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    std::error_code ignored;
    if (std::filesystem::exists(absl::StrCat(folder, "/", program), ignored)) return true;
  }
  return false;
}

}  // namespace

CheckResult CheckSanitizer(const Tools& tools, absl::Time deadline) {
  if (!IsOnPath(kSanitizer)) {
    return Skipped("compute-sanitizer is not on PATH; CUDA's toolkit has it");
  }
  CheckResult result;
  std::vector<std::string> found;
  for (const std::string tool : {"memcheck", "racecheck", "initcheck", "synccheck"}) {
    const ChildOutput output =
        tools.Run(absl::StrCat("sanitizer_", tool),
                  {kSanitizer, "--tool", tool, "--error-exitcode", "9",
                   tools.bin + "/tandem-check-device", "kernels", "--device", "cuda:0", "--small"},
                  deadline);
    const bool passed = output.status.ok();
    result.measured[tool] = {{"passed", passed}, {"comparisons", output.objects.size() / 2}};
    if (passed) continue;
    result.measured[tool]["error"] = std::string(output.status.message());
    found.push_back(tool);
    if (absl::IsCancelled(output.status)) break;
  }
  result.summary = "memcheck, racecheck, initcheck, synccheck";
  if (!found.empty()) {
    result.Fail(absl::StrCat(absl::StrJoin(found, ", "), " found errors; the logs have them: ",
                             tools.folder, "/sanitizer_*.log"));
  }
  return result;
}

}  // namespace tandem::gpu_check
