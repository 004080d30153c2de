// GlooLinks: gives Gloo a group's ready connections, so that Gloo neither listens nor connects.
//
// By default Gloo listens for the group's lifetime and trusts what it accepts: any peer that sends
// eight bytes holding a small number takes a rank's place; malformed bytes crash the process, and
// so does a failed accept() when strangers hold all descriptors. Instead, ranks connect with
// ConnectSockets(), where each proves that it belongs to the group, and Gloo uses those sockets.
//
//   ASSIGN_OR_RETURN(auto sockets,
//                    ConnectSockets(host, rank, size, *connection, deadline, cancelled));
//   ASSIGN_OR_RETURN(auto links, GlooLinks::Create(std::move(sockets)));
//   options->devices.push_back(links->device());
//   auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
//   links.reset();
#ifndef TANDEM_COMMON_COMM_GLOO_LINKS_H_
#define TANDEM_COMMON_COMM_GLOO_LINKS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"

namespace gloo::transport {
class Device;
}

namespace tandem::comm {

// Lives while one group is created. One thread.
class GlooLinks {
 public:
  // `sockets`: connected stream sockets to the other ranks, indexed by rank. INTERNAL if this
  // LibTorch's Gloo is not the version that this code was written for and would connect by itself.
  static absl::StatusOr<std::unique_ptr<GlooLinks>> Create(
      std::vector<host::FileDescriptor> sockets);
  virtual ~GlooLinks() = default;

  // A TCP device that does not listen. It may outlive this object, but create its context before
  // this object is destroyed.
  virtual const std::shared_ptr<gloo::transport::Device>& device() const = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_GLOO_LINKS_H_
