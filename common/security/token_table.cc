#include "common/security/token_table.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::security {

absl::StatusOr<std::vector<TokenTable::Entry>> TokenTable::Parse(const std::string& text) {
  std::vector<Entry> entries;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": expected ROLE TOKEN, found ", words.size(), " words"));
    }
    const absl::StatusOr<Role> role = ParseRole(words[0]);
    if (!role.ok()) {
      // Omits the text found: the words may be swapped, and it a token.
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number,
                       ": expected ROLE TOKEN, where ROLE is driver, trainer, rollout, reward "
                       "or observer"));
    }
    RETURN_IF_ERROR(CheckToken(words[1])) << "line " << number;
    entries.push_back({*role, Digest(words[1])});
  }
  if (entries.empty()) {
    return absl::InvalidArgumentError("expected lines of ROLE TOKEN, found none");
  }
  return entries;
}

absl::StatusOr<std::unique_ptr<TokenTable>> TokenTable::Open(const std::string& path) {
  auto out = absl::WrapUnique(new TokenTable(path));
  RETURN_IF_ERROR(out->Refresh());
  return out;
}

absl::Status TokenTable::Refresh() {
  return file_.Refresh([this](const std::string& text) -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<Entry> entries, Parse(text));
    absl::MutexLock lock(&mu_);
    entries_ = std::move(entries);
    return absl::OkStatus();
  });
}

std::optional<Role> TokenTable::Find(absl::string_view token) {
  if (const absl::Status status = Refresh(); !status.ok()) {
    telemetry::LogWarning("cannot read the tokens; keeping the previous ones",
                          {{"error", status.message()}});
  }
  const std::string digest = Digest(token);
  std::optional<Role> found;
  absl::MutexLock lock(&mu_);
  for (const Entry& entry : entries_) {
    if (AreEqual(entry.digest, digest)) found = entry.role;  // and goes on
  }
  return found;
}

}  // namespace tandem::security
