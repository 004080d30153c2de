#include "common/security/token_file.h"

#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::security {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr int64_t kMaxTokenFileBytes = 1 << 20;

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

absl::Status CheckToken(absl::string_view token) {
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("token: expected ", kMinTokenBytes, " to ", kMaxTokenBytes,
                     " characters, found ", token.size(), "; `openssl rand -hex 32` makes one"));
  }
  for (const char c : token) {
    // The characters that an HTTP header carries unescaped.
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(
          "token: expected printable ASCII characters without spaces, found another character");
    }
  }
  return absl::OkStatus();
}

absl::Status WatchedFile::Refresh(const std::function<absl::Status(const std::string&)>& use) {
  absl::MutexLock lock(&mu_);
  const absl::Time now = absl::Now();
  if (now < next_look_) return absl::OkStatus();
  next_look_ = now + kLook;
  struct stat found = {};
  if (stat(path_.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, path_);
  }
  if (IsSame(found, seen_)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path_, kMaxTokenFileBytes));
  // Reports an unreadable file once, and reads it again when it has changed.
  seen_ = found;
  RETURN_IF_ERROR(use(text)) << path_;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path) {
  auto out = absl::WrapUnique(new TokenFile(path));
  RETURN_IF_ERROR(out->Refresh());
  return out;
}

absl::Status TokenFile::Refresh() {
  return file_.Refresh([this](const std::string& text) -> absl::Status {
    const absl::string_view token = absl::StripAsciiWhitespace(text);
    RETURN_IF_ERROR(CheckToken(token));
    absl::MutexLock lock(&mu_);
    token_ = std::string(token);
    return absl::OkStatus();
  });
}

std::string TokenFile::Get() {
  if (const absl::Status status = Refresh(); !status.ok()) {
    telemetry::LogWarning("cannot read the token file; keeping the last token",
                          {{"error", status.message()}});
  }
  absl::MutexLock lock(&mu_);
  return token_;
}

}  // namespace tandem::security
