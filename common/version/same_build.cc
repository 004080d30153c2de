#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/version/version.h"

namespace tandem::version {

bool IsSameBuild(absl::string_view a, absl::string_view b) {
  using Parts = std::pair<absl::string_view, absl::string_view>;
  const Parts left = absl::StrSplit(a, absl::MaxSplits('+', 1));
  const Parts right = absl::StrSplit(b, absl::MaxSplits('+', 1));
  if (left.first != right.first) return false;
  return left.second.empty() || right.second.empty() || left.second == right.second;
}

std::string DescribeOtherBuild(absl::string_view who, absl::string_view version) {
  if (version.empty() || IsSameBuild(version, BuildVersion())) return "";
  return absl::StrCat(who, " is version ", version, ", but this program is ", BuildVersion(),
                      "; deploy one version everywhere");
}

}  // namespace tandem::version
