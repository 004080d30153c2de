#include "common/io/lock_record.h"

#include <limits.h>
#include <unistd.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/io/json_fields.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

constexpr int64_t kMaxProcFileBytes = 1 << 16;

// Field 22 of /proc/PID/stat; 0 where there is no such process.
int64_t StartTicks(int64_t pid) {
  const absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat("/proc/", pid, "/stat"), kMaxProcFileBytes);
  if (!text.ok()) return 0;
  // The second field is the program's name in parentheses and may hold anything.
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(text->substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTime = 22 - 3;  // the first one here is field 3
  int64_t ticks = 0;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &ticks)) return 0;
  return ticks;
}

}  // namespace

LockRecord OwnLockRecord() {
  LockRecord record;
  record.pid = ::getpid();
  record.start_ticks = StartTicks(record.pid);
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof(name) - 1) == 0) record.host = name;
  char target[64] = "";
  if (::readlink("/proc/self/ns/pid", target, sizeof(target) - 1) > 0) {
    record.pid_namespace = target;
  }
  absl::StatusOr<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id", kMaxProcFileBytes);
  if (boot.ok()) record.boot_id = std::string(absl::StripSuffix(*boot, "\n"));
  record.since = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  return record;
}

std::string ToText(const LockRecord& record) {
  const nlohmann::json line = {{"pid", record.pid},         {"start_ticks", record.start_ticks},
                               {"host", record.host},       {"pid_namespace", record.pid_namespace},
                               {"boot_id", record.boot_id}, {"since", record.since}};
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<LockRecord> ParseLockRecord(absl::string_view text, const std::string& place) {
  const nlohmann::json parsed = ParseJson<nlohmann::json>(text).value_or(nullptr);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected one JSON object"));
  }
  const JsonFields fields(parsed, place);
  LockRecord record;
  ASSIGN_OR_RETURN(record.pid, fields.Int("pid"));
  ASSIGN_OR_RETURN(record.start_ticks, fields.Int("start_ticks"));
  ASSIGN_OR_RETURN(record.host, fields.String("host"));
  ASSIGN_OR_RETURN(record.pid_namespace, fields.String("pid_namespace"));
  ASSIGN_OR_RETURN(record.boot_id, fields.String("boot_id"));
  ASSIGN_OR_RETURN(record.since, fields.String("since"));
  if (record.pid <= 0) return fields.Error("pid", "expected a process id");
  return record;
}

std::string Describe(const LockRecord& record) {
  return absl::StrCat("process ", record.pid, " on host ", record.host, ", since ", record.since);
}

bool IsRunning(const LockRecord& record) {
  return record.start_ticks != 0 && StartTicks(record.pid) == record.start_ticks;
}

}  // namespace tandem::io
