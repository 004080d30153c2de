// Both services score the same random tokens with the same random model, on the GPU.
#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/status/status_macros.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

// Of a bfloat16 model whose log-probs spread by nats: a wrong mask or scale is more than this,
// other roundings are less.
constexpr double kFastLimit = 0.1;

absl::Status WriteSequences(const std::string& path, int64_t vocab) {
  std::mt19937 random(3);
  std::string lines;
  for (const int length : {2, 17, 64, 65, 130, 300, 511, 700}) {
    std::vector<uint32_t> ids(length);
    for (uint32_t& id : ids) id = 1 + static_cast<uint32_t>(random() % (vocab - 1));
    absl::StrAppend(&lines, io::JsonText(nlohmann::json{{"ids", ids}}), "\n");
  }
  return io::WriteFileAtomically(path, lines);
}

// With one kind of numerics; adds what it measured under that name.
void Score(const Tools& tools, const std::string& model, const std::string& numerics, double limit,
           absl::Time deadline, CheckResult& result) {
  const std::string name = absl::StrCat("log_probs_", numerics);
  const ChildOutput output = tools.RunTandem(
      name,
      {"score", "--side", "both", "--model", model, "--dtype", "bfloat16", "--numerics", numerics,
       "--input", tools.folder + "/sequences.jsonl", "--set", "trainer.device=cuda", "--set",
       "rollout.device=cuda", "--set", absl::StrCat("run_dir=", tools.RunDir(name))},
      deadline);
  AddServiceNotes(tools.RunDir(name), result);
  if (!output.status.ok()) return result.Fail(std::string(output.status.message()));
  const absl::StatusOr<Difference> difference = DifferenceOf(output.objects);
  if (!difference.ok()) {
    return result.Fail(absl::StrCat(numerics, " numerics: ", difference.status().message()));
  }
  result.measured[numerics] = {{"tokens", difference->tokens},
                               {"greatest_difference", difference->greatest},
                               {"mean_difference", difference->mean},
                               {"limit", limit}};
  absl::StrAppendFormat(&result.summary, "%s%s %.2g", result.summary.empty() ? "" : ", ", numerics,
                        difference->greatest);
  if (difference->greatest > limit) {
    result.Fail(absl::StrFormat("%s numerics: log-probs differ by up to %.3g, expected at most %g",
                                numerics, difference->greatest, limit));
  }
}

}  // namespace

absl::StatusOr<Difference> DifferenceOf(const std::vector<nlohmann::json>& lines) {
  Difference difference;
  double sum = 0;
  for (const nlohmann::json& line : lines) {
    const nlohmann::json trainer = line.value("trainer", nlohmann::json::array());
    const nlohmann::json rollout = line.value("rollout", nlohmann::json::array());
    if (trainer.size() != rollout.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected as many log-probs of both sides, found ", trainer.size(),
                       " of the trainer and ", rollout.size(), " of the rollout"));
    }
    for (size_t i = 0; i < trainer.size(); ++i) {
      // JSON has no number for an infinite or undefined one.
      if (!trainer[i].is_number() || !rollout[i].is_number()) {
        return absl::InvalidArgumentError(absl::StrCat("log-prob ", i, " is not a finite number"));
      }
      const double apart = std::abs(trainer[i].get<double>() - rollout[i].get<double>());
      difference.greatest = std::max(difference.greatest, apart);
      sum += apart;
      ++difference.tokens;
    }
  }
  if (difference.tokens == 0) return absl::InvalidArgumentError("found no log-probs");
  difference.mean = sum / static_cast<double>(difference.tokens);
  return difference;
}

CheckResult CheckLogProbs(const Tools& tools, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("tiny", TinyShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  const absl::Status written = WriteSequences(tools.folder + "/sequences.jsonl", TinyShape().vocab);
  if (!written.ok()) return Failed(std::string(written.message()));
  CheckResult result;
  Score(tools, *model, "exact", 0, deadline, result);
  if (result.outcome == Outcome::kFailed) {
    // Fast numerics may work all the same, which says much about where the fault is.
    CheckResult fast;
    Score(tools, *model, "fast", kFastLimit, deadline, fast);
    result.measured.update(fast.measured);
    return result;
  }
  Score(tools, *model, "fast", kFastLimit, deadline, result);
  return result;
}

}  // namespace tandem::gpu_check
