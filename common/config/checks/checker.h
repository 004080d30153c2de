// Checker: collects what is wrong with a configuration's values, each with its place.
#ifndef TANDEM_COMMON_CONFIG_CHECKS_CHECKER_H_
#define TANDEM_COMMON_CONFIG_CHECKS_CHECKER_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/config/validation.h"
#include "common/net/host_port.h"

namespace tandem::config {

// Keeps products of two counts within int64, and a typo from starting a billion processes.
inline constexpr int64_t kMaxCount = 1000000000;
inline constexpr int64_t kMaxProcesses = 65536;
inline constexpr int64_t kMaxMegabytes = int64_t{1} << 24;
inline constexpr double kMaxSeconds = 1e7;
inline constexpr int64_t kMaxWorkers = 1024;

class Checker {
 public:
  explicit Checker(const Places& places, Support support = Support::kThisBuild)
      : places_(places), support_(support) {}

  void Fail(const std::string& key, absl::string_view problem) {
    const auto place = places_.find(key);
    lines_.push_back(absl::StrCat(place == places_.end() ? "" : absl::StrCat(place->second, ": "),
                                  key, ": ", problem));
  }

  void Integer(const std::string& key, int64_t value, int64_t least, int64_t most = kMaxCount) {
    if (value >= least && value <= most) return;
    Fail(key, absl::StrFormat("expected an integer from %d to %d, found %d", least, most, value));
  }

  // `range` states the condition: ">= 0", "in (0, 1]".
  void Number(const std::string& key, double value, bool ok, absl::string_view range) {
    if (ok && std::isfinite(value)) return;
    Fail(key, absl::StrCat("expected a number ", range, ", found ", value));
  }

  void AtLeastZero(const std::string& key, double value) { Number(key, value, value >= 0, ">= 0"); }

  void Seconds(const std::string& key, double value) {
    Number(key, value, value > 0 && value <= kMaxSeconds, "of seconds in (0, 1e7]");
  }

  void Address(const std::string& key, const std::string& value) {
    const absl::StatusOr<net::HostPort> address = net::ParseHostPort(value);
    if (!address.ok()) Fail(key, std::string(address.status().message()));
  }

  // Reports a size that the schema describes and this version does not support: only 1 is.
  void OnlyOne(const std::string& key, int64_t value, int64_t most) {
    if (value > 1 && value <= most && support_ == Support::kThisBuild) {
      Fail(key, absl::StrFormat("not supported yet: %d (supported: 1)", value));
    } else {
      Integer(key, value, 1, most);
    }
  }

  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  const Places& places_;
  const Support support_;
  std::vector<std::string> lines_;
};

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_CHECKS_CHECKER_H_
