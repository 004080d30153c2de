#include "tools/tandem/driver/endpoint_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/read_file.h"
#include "common/net/host_port.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
absl::StatusOr<std::vector<std::string>> ParseEndpoints(const std::string& text,
                                                        const std::string& path) {
  std::vector<std::string> out;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (const auto address = net::ParseHostPort(line); !address.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", address.status().message()));
    }
    if (std::find(out.begin(), out.end(), line) != out.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", line, " is listed twice"));
    }
    out.emplace_back(line);
  }
  return out;
}

absl::StatusOr<EndpointList> EndpointList::Open(const config::v1::RolloutConfig& config,
                                                std::function<void(const std::string&)> note) {
  EndpointList list;
  list.fixed_.assign(config.endpoints().begin(), config.endpoints().end());
  list.path_ = config.endpoints_file();
  RETURN_IF_ERROR(list.ReadIfChanged());
  list.note_ = std::move(note);
  return list;
}

absl::Status EndpointList::ReadIfChanged() {
  if (path_.empty()) return absl::OkStatus();
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("rollout.endpoints_file: ", path_));
  }
  const Stamp stamp{info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  if (stamp == stamp_) return absl::OkStatus();
  // Set before the read, so that an unreadable file is reported once.
  stamp_ = stamp;
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path_));
  ASSIGN_OR_RETURN(of_file_, ParseEndpoints(text, path_));
  return absl::OkStatus();
}

std::vector<ReplicaAddress> EndpointList::Current() {
  const std::string problem(ReadIfChanged().message());
  if (!problem.empty() && problem != last_problem_ && note_) {
    note_(absl::StrCat(problem, "; keeping the present replicas"));
  }
  last_problem_ = problem;
  std::vector<ReplicaAddress> out;
  for (const auto& addresses : {fixed_, of_file_}) {
    for (const std::string& address : addresses) {
      const auto [at, is_new] = ids_.try_emplace(address, absl::StrCat("rollout-", ids_.size()));
      const ReplicaAddress replica{at->second, address};
      if (std::find(out.begin(), out.end(), replica) == out.end()) out.push_back(replica);
    }
  }
  return out;
}

}  // namespace tandem::driver
