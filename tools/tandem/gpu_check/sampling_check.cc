// The rollout samples with the same seed on both devices, in float32: prefill, decoding and sampler
// in one.
#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

// A uniform may lie within the last bits of the edge between two tokens; seldom.
constexpr double kLeastShare = 0.98;
constexpr int kPrompts = 48;

std::string Prompts(int64_t vocab) {
  std::mt19937 random(4);
  std::string lines;
  for (int i = 0; i < kPrompts; ++i) {
    std::vector<uint32_t> ids(1 + random() % 90);
    for (uint32_t& id : ids) id = 1 + static_cast<uint32_t>(random() % (vocab - 1));
    absl::StrAppend(&lines, io::JsonText(nlohmann::json{{"ids", ids}}), "\n");
  }
  return lines;
}

}  // namespace

absl::StatusOr<double> SameTokens(const std::vector<nlohmann::json>& a,
                                  const std::vector<nlohmann::json>& b) {
  if (a.size() != b.size() || a.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected as many completions of both, found ", a.size(), " and ", b.size()));
  }
  int64_t same = 0, compared = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto here = a[i].value("ids", std::vector<int64_t>());
    const auto there = b[i].value("ids", std::vector<int64_t>());
    if (here.size() != there.size() || here.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("completion ", i,
                                                     ": expected as many tokens of both, found ",
                                                     here.size(), " and ", there.size()));
    }
    // What follows a different token has another context.
    for (size_t token = 0; token < here.size(); ++token) {
      ++compared;
      if (here[token] != there[token]) break;
      ++same;
    }
  }
  return static_cast<double>(same) / static_cast<double>(compared);
}

CheckResult CheckSampling(const Tools& tools, absl::Time deadline) {
  const absl::StatusOr<std::string> model = tools.Model("tiny", TinyShape());
  if (!model.ok()) return Failed(std::string(model.status().message()));
  const std::string prompts = tools.folder + "/prompts.jsonl";
  const absl::Status written = io::WriteFileAtomically(prompts, Prompts(TinyShape().vocab));
  if (!written.ok()) return Failed(std::string(written.message()));
  CheckResult result;
  std::vector<nlohmann::json> by_device[2];
  for (const std::string device : {"cuda", "cpu"}) {
    const std::string name = absl::StrCat("sampling_", device);
    ChildOutput output = tools.RunTandem(name,
                                         {"generate",
                                          "--model",
                                          *model,
                                          "--dtype",
                                          "float32",
                                          "--input",
                                          prompts,
                                          "--json",
                                          "--max-tokens",
                                          "24",
                                          "--temperature",
                                          "1",
                                          "--top-k",
                                          "100",
                                          "--top-p",
                                          "0.9",
                                          "--seed",
                                          "7",
                                          "--ignore-eos",
                                          "--set",
                                          absl::StrCat("rollout.device=", device),
                                          "--set",
                                          absl::StrCat("run_dir=", tools.RunDir(name))},
                                         deadline);
    if (device == "cuda") AddServiceNotes(tools.RunDir(name), result);
    if (!output.status.ok()) {
      result.Fail(std::string(output.status.message()));
      return result;
    }
    by_device[device == "cpu"] = std::move(output.objects);
  }
  const absl::StatusOr<double> share = SameTokens(by_device[0], by_device[1]);
  if (!share.ok()) {
    result.Fail(std::string(share.status().message()));
    return result;
  }
  result.measured["same_tokens"] = *share;
  result.measured["limit"] = kLeastShare;
  result.summary = absl::StrFormat("%.1f %% the same", 100 * *share);
  if (*share < kLeastShare) {
    result.Fail(absl::StrFormat("%.1f %% of the tokens are the CPU's, expected at least %.0f %%",
                                100 * *share, 100 * kLeastShare));
  }
  return result;
}

}  // namespace tandem::gpu_check
