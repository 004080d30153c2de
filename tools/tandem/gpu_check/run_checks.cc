#include "tools/tandem/gpu_check/run_checks.h"

#include <algorithm>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/text/count.h"

namespace tandem::gpu_check {
namespace {

CheckResult Run(const Check& check, absl::Time deadline) {
  try {
    return check.run(std::min(deadline, absl::Now() + check.limit));
  } catch (const std::exception& error) {
    return Failed(error.what());
  }
}

}  // namespace

std::vector<Ran> RunChecks(const std::vector<Check>& checks, const RunChecksOptions& options) {
  std::vector<Ran> ran;
  const Check* missing = nullptr;  // a needed check that failed
  for (const Check& check : checks) {
    if (options.begins) options.begins(check, ran.size());
    const absl::Time start = absl::Now();
    CheckResult result;
    if (missing != nullptr) {
      result = Skipped(absl::StrCat("the check '", missing->name, "' failed"));
    } else if (options.interrupted && options.interrupted()) {
      result = Skipped("interrupted");
    } else if (start >= options.deadline) {
      result = Failed("not run: the time limit of all checks has passed");
    } else {
      result = Run(check, options.deadline);
    }
    if (check.is_needed && result.outcome == Outcome::kFailed && missing == nullptr) {
      missing = &check;
    }
    ran.push_back(
        {check.name, check.title, absl::ToDoubleSeconds(absl::Now() - start), std::move(result)});
    if (options.ended) options.ended(ran);
  }
  return ran;
}

absl::Status StatusOf(const std::vector<Ran>& ran) {
  std::vector<std::string> failed;
  for (const Ran& check : ran) {
    if (check.result.outcome == Outcome::kFailed) failed.push_back(check.name);
  }
  if (failed.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(text::Count(static_cast<int64_t>(failed.size()), "check"), " of ", ran.size(),
                   " failed: ", absl::StrJoin(failed, ", ")));
}

}  // namespace tandem::gpu_check
