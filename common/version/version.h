// The version of these programs: that of the project in the root's CMakeLists.txt and, if git knew
// it, the commit that the sources were built from. Programs print it with --version, services report
// it as build_version.
#ifndef TANDEM_COMMON_VERSION_VERSION_H_
#define TANDEM_COMMON_VERSION_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::version {

// "0.1.0+g1a2b3c4d5e6f", or "0.1.0" if the commit is unknown: semantic versioning, with the commit as
// the build metadata.
absl::string_view BuildVersion();

// Whether two versions may be of one build: false if the numbers differ, or the commits if both are
// known.
bool IsSameBuild(absl::string_view a, absl::string_view b);

// Returns a warning that `who` ("rollout-0"), which reports `version`, runs another build than this
// program; "" if it runs the same or reports none.
std::string DescribeOtherBuild(absl::string_view who, absl::string_view version);

}  // namespace tandem::version

#endif  // TANDEM_COMMON_VERSION_VERSION_H_
