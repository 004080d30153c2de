// GlooLinks: gives Gloo the connections of a group, so that Gloo neither listens nor connects.
//
// By itself Gloo listens for as long as a group stands, and trusts what it accepts: whoever sends
// eight bytes with a small number takes a rank's seat, bytes that are no message of Gloo's end the
// process, and so does an accept() that fails because strangers hold all descriptors. Ranks connect
// by ConnectSockets() instead, where each proves that it is of the group, and Gloo takes those.
//
//   ASSIGN_OR_RETURN(auto sockets, ConnectSockets(host, rank, size, *store, deadline, cancelled));
//   ASSIGN_OR_RETURN(auto links, GlooLinks::Create(std::move(sockets)));
//   options->devices.push_back(links->device());
//   auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(..., options);   // takes them
//   links.reset();
#ifndef TANDEM_COMMON_COMM_GLOO_LINKS_H_
#define TANDEM_COMMON_COMM_GLOO_LINKS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status/file_descriptor.h"

namespace gloo::transport {
class Device;
}

namespace tandem::comm {

// Made and destroyed around the making of one group. One thread.
class GlooLinks {
 public:
  // `sockets`: a connected stream socket to each other rank, by rank. INTERNAL where this
  // LibTorch's Gloo is another than the one that this was written for, and would connect by itself.
  static absl::StatusOr<std::unique_ptr<GlooLinks>> Create(std::vector<FileDescriptor> sockets);
  virtual ~GlooLinks() = default;

  // A device of TCP that does not listen. It outlives this; its context must be made meanwhile.
  virtual const std::shared_ptr<gloo::transport::Device>& device() const = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_GLOO_LINKS_H_
