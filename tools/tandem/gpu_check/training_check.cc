// `tandem bench train` with a model of half a billion parameters on one rank.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/count.h"
#include "tools/tandem/gpu_check/checks.h"
#include "tools/tandem/gpu_check/limits.h"

namespace tandem::gpu_check {
namespace {

constexpr int64_t kLength = 4096;
constexpr int64_t kSteps = 4;

// How the step is trained.
struct Work {
  int64_t batch = 1;  // sequences, in one micro-batch
  bool recompute = false;
};

// What may fit the memory, then what needs least of it.
std::vector<Work> WorksFor(int64_t memory_bytes) {
  std::vector<Work> works;
  if (memory_bytes >= 60'000'000'000) works.push_back({.batch = 4});
  if (memory_bytes >= 20'000'000'000) works.push_back({.batch = 1});
  works.push_back({.batch = 1, .recompute = true});
  return works;
}

std::string Describe(const Work& work) {
  return absl::StrCat(text::Count(work.batch, "sequence"), " at once",
                      work.recompute ? ", with activations recomputed" : "");
}

ChildOutput Train(const Tools& tools, const std::string& model, const Work& work,
                  absl::Time deadline) {
  std::vector<std::string> args = {"bench",
                                   "train",
                                   "--model",
                                   model,
                                   "--dtype",
                                   "bfloat16",
                                   "--ranks",
                                   "1",
                                   "--batch",
                                   absl::StrCat(work.batch),
                                   "--sequence-length",
                                   absl::StrCat(kLength),
                                   "--steps",
                                   absl::StrCat(kSteps),
                                   "--set",
                                   "trainer.device=cuda",
                                   "--set",
                                   absl::StrCat("run_dir=", tools.RunDir("training"))};
  if (work.recompute) {
    args.insert(args.end(), {"--set", "trainer.activation_checkpointing=full"});
  }
  ChildOutput output = tools.RunTandem("training", std::move(args), deadline);
  if (output.status.ok() && output.objects.empty()) {
    output.status = absl::InternalError("tandem bench train printed nothing");
  }
  return output;
}

}  // namespace

CheckResult CheckTraining(const Tools& tools, const Machine& machine, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("half_billion", HalfBillionShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  CheckResult result;
  ChildOutput output;
  for (const Work& work : WorksFor(machine.memory_bytes)) {
    output = Train(tools, *model, work, deadline);
    result.measured["work"] = Describe(work);
    if (output.status.code() != absl::StatusCode::kUnavailable) break;
    result.fell_back.push_back(absl::StrCat(Describe(work), ": ", output.status.message()));
  }
  AddServiceNotes(tools.RunDir("training"), result);
  if (!output.status.ok()) {
    result.Fail(std::string(output.status.message()));
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
