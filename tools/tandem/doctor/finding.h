// Findings of the doctor, each with its cure.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_FINDING_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_FINDING_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/count.h"

namespace tandem::doctor {

// "1 core", "2 cores".
using text::Count;

enum class Severity { kOk, kWarning, kError };

struct Finding {
  Severity severity = Severity::kOk;
  std::string what;   // "model", "trainer 10.0.0.1:5000", "disk of /runs"
  std::string found;  // a short sentence
  std::string cure;   // empty if nothing is wrong
  // Figures, for programs; null: none.
  nlohmann::json measured = nullptr;
  std::string table = "";  // lines, for a terminal; empty if `found` says it all
};

// In the order of the checks.
class Findings {
 public:
  void Ok(std::string what, std::string found) {
    all_.push_back({Severity::kOk, std::move(what), std::move(found), "", nullptr, ""});
  }
  void Warn(std::string what, std::string found, std::string cure) {
    all_.push_back(
        {Severity::kWarning, std::move(what), std::move(found), std::move(cure), nullptr, ""});
  }
  void Fail(std::string what, std::string found, std::string cure) {
    all_.push_back(
        {Severity::kError, std::move(what), std::move(found), std::move(cure), nullptr, ""});
  }
  void Add(Finding finding) { all_.push_back(std::move(finding)); }

  const std::vector<Finding>& all() const { return all_; }
  int Count(Severity severity) const {
    int count = 0;
    for (const Finding& finding : all_) count += finding.severity == severity ? 1 : 0;
    return count;
  }

 private:
  std::vector<Finding> all_;
};

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_FINDING_H_
