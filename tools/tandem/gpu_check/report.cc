#include "tools/tandem/gpu_check/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/tandem/gpu_check/run_checks.h"

namespace tandem::gpu_check {
namespace {

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPassed:
      return "passed";
    case Outcome::kFailed:
      return "failed";
    default:
      return "skipped";
  }
}

std::string Indented(const std::string& text) {
  return absl::StrCat("         ", absl::StrReplaceAll(text, {{"\n", "\n         "}}), "\n");
}

}  // namespace

nlohmann::json ToJson(const Report& report) {
  nlohmann::json checks = nlohmann::json::object();
  for (const Ran& ran : report.ran) {
    nlohmann::json check = {{"outcome", NameOf(ran.result.outcome)},
                            {"seconds", ran.seconds},
                            {"fell_back", ran.result.fell_back},
                            {"measured", ran.result.measured}};
    if (!ran.result.reason.empty()) check["reason"] = ran.result.reason;
    checks[ran.name] = std::move(check);
  }
  const bool complete = report.ran.size() == report.num_checks;
  return {{"format", 1},
          {"tandem", report.version},
          {"started", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", report.started, absl::UTCTimeZone())},
          {"seconds", report.seconds},
          {"complete", complete},
          {"passed", complete && StatusOf(report.ran).ok()},
          {"checks", std::move(checks)}};
}

std::string Table(const std::vector<Ran>& ran) {
  std::string table;
  for (const Ran& check : ran) {
    const CheckResult& result = check.result;
    const bool passed = result.outcome == Outcome::kPassed;
    const bool skipped = result.outcome == Outcome::kSkipped;
    absl::StrAppendFormat(&table, "%-8s %-26s %7.1f s  %s\n", NameOf(result.outcome), check.title,
                          check.seconds, skipped ? result.reason : result.summary);
    if (!passed && !skipped) absl::StrAppend(&table, Indented(result.reason));
    for (const std::string& what : result.fell_back) {
      absl::StrAppend(&table, Indented(absl::StrCat("fell back: ", what)));
    }
  }
  return table;
}

}  // namespace tandem::gpu_check
