// `tandem bench generate` with a model of half a billion parameters, alone and in a batch.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tandem/gpu_check/checks.h"
#include "tools/tandem/gpu_check/limits.h"

namespace tandem::gpu_check {
namespace {

// Adds what it measured under "batch_N".
void Decode(const Tools& tools, const Machine& machine, const std::string& model, int64_t batch,
            absl::Time deadline, CheckResult& result) {
  const std::string name = absl::StrCat("decoding_", batch);
  const ChildOutput output = tools.RunTandem(
      name,
      {"bench", "generate", "--model", model, "--dtype", "bfloat16", "--device", "cuda", "--batch",
       absl::StrCat(batch), "--prompt-tokens", "128", "--new-tokens", "256", "--repeats", "3",
       "--set", absl::StrCat("run_dir=", tools.RunDir(name))},
      deadline);
  AddServiceNotes(tools.RunDir(name), result);
  if (!output.status.ok() || output.objects.empty()) {
    return result.Fail(output.status.ok() ? "tandem bench generate printed nothing"
                                          : std::string(output.status.message()));
  }
  const nlohmann::json& bench = output.objects.back();
  const double tokens = bench.value("decode_tokens_per_second", 0.0);
  const double limit = DecodeLimit(
      {.bytes = bench.value("step_bytes", 0.0), .flops = bench.value("step_flops", 0.0)}, batch,
      machine.rates);
  nlohmann::json measured = {{"bench", bench}, {"limit_tokens_per_second", limit}};
  absl::StrAppendFormat(&result.summary, "%sbatch %d: %.0f tokens/s",
                        result.summary.empty() ? "" : "; ", batch, tokens);
  if (limit > 0) {
    measured["share_of_limit"] = tokens / limit;
    absl::StrAppendFormat(&result.summary, ", %.1f %% of the limit", 100 * tokens / limit);
  }
  result.measured[absl::StrCat("batch_", batch)] = std::move(measured);
  if (tokens <= 0) result.Fail("tandem bench generate measured no tokens");
}

}  // namespace

CheckResult CheckDecoding(const Tools& tools, const Machine& machine, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("half_billion", HalfBillionShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  CheckResult result;
  for (const int64_t batch : {1, 64}) {
    Decode(tools, machine, *model, batch, deadline, result);
    if (result.outcome == Outcome::kFailed) break;
  }
  return result;
}

}  // namespace tandem::gpu_check
