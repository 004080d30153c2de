// `tandem bench sync --device cuda` with a model of half a billion parameters.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

// Adds what it measured under the backend's name.
void Update(const Tools& tools, const std::string& model, const std::string& backend,
            absl::Time deadline, CheckResult& result) {
  const ChildOutput output =
      tools.RunTandem(absl::StrCat("updates_", backend),
                      {"bench", "sync", "--model", model, "--dtype", "bfloat16", "--device", "cuda",
                       "--backend", backend, "--rollouts", "1", "--repeats", "5"},
                      deadline);
  if (!output.status.ok() || output.objects.empty()) {
    return result.Fail(output.status.ok() ? "tandem bench sync printed nothing"
                                          : std::string(output.status.message()));
  }
  const nlohmann::json& bench = output.objects.back();
  result.measured[backend] = bench;
  absl::StrAppendFormat(
      &result.summary, "%s%s: %.1f GB/s, bare %.1f, copy %.1f", result.summary.empty() ? "" : "; ",
      backend, bench.value("gigabytes_per_second", 0.0),
      bench.value("raw_gigabytes_per_second", 0.0), bench.value("copy_gigabytes_per_second", 0.0));
  if (bench.value("gigabytes_per_second", 0.0) <= 0) {
    result.Fail("tandem bench sync measured no bytes");
  }
}

}  // namespace

CheckResult CheckUpdates(const Tools& tools, const Machine& machine, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("half_billion", HalfBillionShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  CheckResult result;
  const bool one = machine.facts.gpus.size() == 1;
  Update(tools, *model, one ? "cuda_ipc" : "nccl", deadline, result);
  if (one) result.measured["nccl"] = "skipped: NCCL needs a GPU for each rank, and there is one";
  return result;
}

}  // namespace tandem::gpu_check
