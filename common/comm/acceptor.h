// Acceptor: accepts connections from a listener. When strangers have used up this process's
// descriptors, it pauses instead of spinning or failing.
#ifndef TANDEM_COMMON_COMM_ACCEPTOR_H_
#define TANDEM_COMMON_COMM_ACCEPTOR_H_

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/net/listener.h"

namespace tandem::comm {

// Long enough that strangers cannot fill the queue between two polls.
inline constexpr int kListenBacklog = 1024;

// One thread.
class Acceptor {
 public:
  // Do not poll the listener before this time; in the past unless descriptors ran out.
  absl::Time paused_until() const { return paused_until_; }
  bool is_paused(absl::Time now) const { return paused_until_ > now; }

  // Calls take(FileDescriptor, sockaddr_storage, socklen_t) for each pending connection, at most
  // kMaxAtOnce, and make_room() when the process is out of descriptors; make_room() returns false
  // if it could not free one.
  template <typename Take, typename MakeRoom>
  void Accept(const host::FileDescriptor& listener, const Take& take, const MakeRoom& make_room) {
    for (int i = 0; i < kMaxAtOnce; ++i) {
      sockaddr_storage peer{};
      socklen_t length = sizeof(peer);
      host::FileDescriptor fd(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.is_open()) {
        take(std::move(fd), peer, length);
        continue;
      }
      if (errno == EAGAIN) return;
      // Any other error concerns only that connection.
      if (!net::IsOutOfDescriptors(errno) || make_room()) continue;
      paused_until_ = absl::Now() + kPause;
      return;
    }
  }

 private:
  // After so many, the caller's other sockets have their turn.
  static constexpr int kMaxAtOnce = 64;
  static constexpr absl::Duration kPause = absl::Milliseconds(100);

  absl::Time paused_until_ = absl::InfinitePast();
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ACCEPTOR_H_
