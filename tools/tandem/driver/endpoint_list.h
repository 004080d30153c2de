// EndpointList: the addresses of rollouts that run elsewhere: those of rollout.endpoints, and of
// rollout.endpoints_file, which is read again when it changes.
//
// The file has one HOST:PORT a line; what follows a '#' is left out.
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

// Addresses of a file's text. INVALID_ARGUMENT names `path`, the line, and what is wrong with it.
absl::StatusOr<std::vector<std::string>> ParseEndpoints(const std::string& text,
                                                        const std::string& path);

// Used by one thread at a time.
class EndpointList {
 public:
  // NOT_FOUND or INVALID_ARGUMENT where the file cannot be read. `note` is told of a later version
  // that cannot be used.
  static absl::StatusOr<EndpointList> Open(const config::v1::RolloutConfig& config,
                                           std::function<void(const std::string&)> note);

  // Who is listed now. An address keeps its id ("rollout-0") for ever. A file that has become
  // unreadable or wrong changes nothing.
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
