#include "services/trainer/service/allowed_path.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

absl::StatusOr<std::filesystem::path> Canonical(const std::string& path) {
  std::error_code error;
  std::filesystem::path out =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  return out.has_filename() ? out : out.parent_path();
}

bool IsUnder(const std::filesystem::path& path, const std::filesystem::path& root) {
  const auto mismatch = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return mismatch.first == root.end() && mismatch.second != path.end();
}

}  // namespace

absl::StatusOr<std::string> ResolveUnder(const std::string& path,
                                         const std::vector<std::string>& roots,
                                         const std::string& hint) {
  if (path.empty()) return rpc::InvalidField("path", "expected a folder, found nothing");
  // The system would cut the path at a zero byte and open one that was not checked.
  if (path.find('\0') != std::string::npos) {
    return rpc::InvalidField("path", "expected a path, found one with a zero byte");
  }
  ASSIGN_OR_RETURN(const std::filesystem::path resolved, Canonical(path));
  std::string allowed;
  for (const std::string& root : roots) {
    ASSIGN_OR_RETURN(const std::filesystem::path canonical, Canonical(root));
    if (IsUnder(resolved, canonical)) return resolved.string();
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", canonical.string());
  }
  return rpc::InvalidField("path", absl::StrCat("expected a folder under ", allowed, ", ", hint,
                                                "; found ", resolved.string()));
}

}  // namespace tandem::trainer
