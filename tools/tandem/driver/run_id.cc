#include "tools/tandem/driver/run_id.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/io/atomic_file.h"
#include "common/io/read_file.h"
#include "common/rpc/new_uuid.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

constexpr int64_t kMaxFileBytes = 1024;
constexpr size_t kUuidLength = 36;

bool IsUuid(absl::string_view text) {
  return text.size() == kUuidLength && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

}  // namespace

absl::StatusOr<std::string> ChooseRunId(const std::string& run_dir, bool resume) {
  const std::string path = run_dir + "/run_id";
  if (resume) {
    absl::StatusOr<std::string> kept = io::ReadFile(path, kMaxFileBytes);
    if (kept.ok()) {
      std::string id(absl::StripAsciiWhitespace(*kept));
      if (IsUuid(id)) return id;
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": expected a UUID, found \"", id.substr(0, 64),
                       "\"; restore the file, or delete it to continue under a new run id"));
    }
    if (!absl::IsNotFound(kept.status())) return kept.status();
  }
  return rpc::NewUuid();
}

absl::Status WriteRunId(const std::string& run_dir, const std::string& id) {
  return io::WriteFileAtomically(run_dir + "/run_id", absl::StrCat(id, "\n"));
}

}  // namespace tandem::driver
