// Runs tandem-check-device's comparisons of kernels, and starts it again behind one in which it
// ended: a fault on a GPU leaves nothing of a process to go on with.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/json_text.h"
#include "tools/tandem/gpu_check/checks.h"

namespace tandem::gpu_check {
namespace {

// Of all comparisons so far.
struct Tally {
  nlohmann::json comparisons = nlohmann::json::array();
  std::vector<std::string> failed;
  int64_t next = 0;
  int64_t count = -1;  // -1: not known yet
  int64_t begun = -1;  // the one that has begun and not ended; -1: none
  std::string begun_name;

  void Read(const nlohmann::json& line, CheckResult& result) {
    if (!line.contains("comparison")) return;
    const int64_t index = line.value("comparison", int64_t{0});
    count = line.value("of", int64_t{0});
    if (line.contains("begins")) {
      begun = index;
      begun_name = line.value("begins", "");
      return;
    }
    begun = -1;
    next = index + 1;
    comparisons.push_back(line);
    const std::string name = line.value("name", "");
    if (!line.value("passed", false)) failed.push_back(name);
    if (!line.value("ours", true)) {
      result.fell_back.push_back(absl::StrCat(name, ": ATen computed it, not our kernel"));
    }
  }

  void Lose(const absl::Status& status) {
    comparisons.push_back(
        {{"name", begun_name}, {"passed", false}, {"error", std::string(status.message())}});
    failed.push_back(begun_name);
    next = begun + 1;
    begun = -1;
  }
};

// What the first failed comparison says.
std::string WhyFailed(const nlohmann::json& comparisons) {
  for (const nlohmann::json& comparison : comparisons) {
    if (comparison.value("passed", false)) continue;
    const std::string error = comparison.value("error", "");
    if (!error.empty()) return error;
    return absl::StrCat("differs by ",
                        io::JsonText(comparison.value("greatest_difference", nlohmann::json())),
                        " in ", comparison.value("worst", "a case"));
  }
  return "";
}

}  // namespace

CheckResult CompareKernels(const std::function<ChildOutput(int64_t first)>& run) {
  CheckResult result;
  Tally tally;
  absl::Status lost;  // ended outside of a comparison, or was ended
  do {
    tally.begun = -1;
    const ChildOutput output = run(tally.next);
    for (const nlohmann::json& line : output.objects) tally.Read(line, result);
    if (output.status.ok()) {
      if (tally.next != tally.count || tally.begun >= 0) {
        lost = absl::InternalError("the comparisons ended early");
      }
      break;
    }
    if (tally.begun < 0 || absl::IsCancelled(output.status)) {
      lost = output.status;
      break;
    }
    tally.Lose(output.status);
    if (absl::IsDeadlineExceeded(output.status)) {
      lost = output.status;
      break;
    }
  } while (tally.next < tally.count);
  result.measured["comparisons"] = tally.comparisons;
  result.summary = absl::StrCat(tally.comparisons.size() - tally.failed.size(), " of ",
                                tally.count < 0 ? 0 : tally.count, " kinds agree");
  if (!tally.failed.empty()) {
    result.Fail(
        absl::StrCat(absl::StrJoin(tally.failed, ", "), ": ", WhyFailed(tally.comparisons)));
  } else if (!lost.ok()) {
    result.Fail(std::string(lost.message()));
  }
  return result;
}

CheckResult CheckKernels(const Tools& tools, absl::Time deadline) {
  return CompareKernels([&](int64_t first) {
    return tools.RunDevice(absl::StrCat("kernels_", first),
                           {"kernels", "--device", "cuda:0", "--from", absl::StrCat(first)},
                           deadline);
  });
}

}  // namespace tandem::gpu_check
