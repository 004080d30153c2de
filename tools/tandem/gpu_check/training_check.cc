// `tandem bench train` with a model of half a billion parameters on one rank.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tandem/gpu_check/checks.h"
#include "tools/tandem/gpu_check/limits.h"

namespace tandem::gpu_check {
namespace {

constexpr int64_t kLength = 4096;
constexpr int64_t kSteps = 4;

// Sequences of a step: states take 8 GB, and each sequence about 4 GB.
int64_t BatchFor(int64_t memory_bytes) {
  if (memory_bytes >= 60'000'000'000) return 8;
  if (memory_bytes >= 38'000'000'000) return 4;
  return memory_bytes >= 22'000'000'000 ? 2 : 1;
}

}  // namespace

CheckResult CheckTraining(const Tools& tools, const Machine& machine, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("half_billion", HalfBillionShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  const int64_t batch = BatchFor(machine.memory_bytes);
  const ChildOutput output =
      tools.RunTandem("training",
                      {"bench", "train", "--model", *model, "--dtype", "bfloat16", "--ranks", "1",
                       "--batch", absl::StrCat(batch), "--sequence-length", absl::StrCat(kLength),
                       "--steps", absl::StrCat(kSteps), "--set", "trainer.device=cuda", "--set",
                       absl::StrCat("run_dir=", tools.RunDir("training"))},
                      deadline);
  CheckResult result;
  AddServiceNotes(tools.RunDir("training"), result);
  if (!output.status.ok() || output.objects.empty()) {
    result.Fail(output.status.ok() ? "tandem bench train printed nothing"
                                   : std::string(output.status.message()));
    return result;
  }
  result.measured["bench"] = output.objects.back();
  result.measured["parameters"] = HalfBillionShape().num_parameters();
  const nlohmann::json& bench = result.measured["bench"];
  const double rate = bench.value("flops_per_second_per_rank", 0.0);
  const double tokens = bench.value("tokens_per_second", 0.0);
  const double share = Utilisation(rate, machine.rates);
  // Null where it was not measured.
  result.measured["mfu"] = share > 0 ? nlohmann::json(share) : nlohmann::json();
  result.summary = absl::StrFormat("%.0f tokens/s, %.0f TFLOP/s", tokens, rate / 1e12);
  if (share > 0) {
    absl::StrAppendFormat(&result.summary, ", MFU %.1f %% of the measured products", 100 * share);
  }
  if (tokens <= 0) result.Fail("tandem bench train measured no tokens");
  return result;
}

}  // namespace tandem::gpu_check
