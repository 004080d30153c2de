// Processes that are as far from one another as containers are: each has a network namespace with
// an address of its own, joined by a bridge; a host name; a /dev/shm; and volumes. Needs root.
#ifndef TANDEM_TESTS_SUPPORT_CONTAINER_NETWORK_H_
#define TANDEM_TESTS_SUPPORT_CONTAINER_NETWORK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/child_process.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

struct ContainerOptions {
  std::string name;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> volumes;  // path in the container -> path here
  std::string log_path;
};

// Used by one thread, the one that made it: the bridge is in a namespace of this thread. Everything
// ends with the process.
class ContainerNetwork {
 public:
  // `names` can be looked up in every container. PERMISSION_DENIED where namespaces cannot be made.
  static absl::StatusOr<std::unique_ptr<ContainerNetwork>> Create(
      const std::vector<std::string>& names);

  // Returns when the program runs and has its address. One of the same name is over, if there was
  // one.
  absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> Start(const ContainerOptions& options);

  // Runs a command in a container; true where it exits with 0 within `timeout`.
  bool Run(const rpc::ChildProcess& container, const std::vector<std::string>& command,
           absl::Duration timeout);

  // Where containers reach this thread's namespace.
  static constexpr char kBridgeAddress[] = "10.77.0.1";

  // Bytes that have come to a container through the bridge.
  absl::StatusOr<int64_t> ReceivedBytes(const std::string& name);

 private:
  ContainerNetwork() = default;
  int IndexOf(const std::string& name) const;

  TempFolder folder_;
  std::vector<std::string> names_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CONTAINER_NETWORK_H_
