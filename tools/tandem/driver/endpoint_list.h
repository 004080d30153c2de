// EndpointList: the addresses of rollouts that run elsewhere, from rollout.endpoints and from
// rollout.endpoints_file, which is read again when it changes.
//
// The file has one HOST:PORT per line; '#' begins a comment.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ENDPOINT_LIST_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ENDPOINT_LIST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/fleet_membership.h"

namespace tandem::driver {

// Parses a file's text. INVALID_ARGUMENT names `path`, the line, and what is wrong with it.
absl::StatusOr<std::vector<std::string>> ParseEndpoints(const std::string& text,
                                                        const std::string& path);

// Used by one thread at a time.
class EndpointList {
 public:
  // NOT_FOUND or INVALID_ARGUMENT if the file cannot be read. `note` receives a message when a
  // later version of the file cannot be used.
  static absl::StatusOr<EndpointList> Open(const config::v1::RolloutConfig& config,
                                           std::function<void(const std::string&)> note);

  // Returns the current list. An address keeps its id ("rollout-0") for ever. If the file has
  // become unreadable or invalid, the list stays as it was.
  std::vector<ReplicaAddress> Current();

 private:
  using Stamp = std::tuple<uint64_t, int64_t, int64_t, int64_t>;  // inode, size, time of change

  absl::Status ReadIfChanged();

  std::vector<std::string> fixed_;
  std::string path_;  // empty: no file
  Stamp stamp_;
  std::vector<std::string> of_file_;
  std::map<std::string, std::string> ids_;  // by address
  std::function<void(const std::string&)> note_;
  std::string last_problem_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ENDPOINT_LIST_H_
