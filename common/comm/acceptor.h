// Acceptor: takes connections off a listener, also when strangers have left this process without a
// descriptor: it neither spins nor gives up then.
#ifndef TANDEM_COMMON_COMM_ACCEPTOR_H_
#define TANDEM_COMMON_COMM_ACCEPTOR_H_

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/listener.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// Strangers cannot fill so long a queue between two looks at it.
inline constexpr int kListenBacklog = 1024;

// One thread.
class Acceptor {
 public:
  // The listener is not to be polled before; in the past, unless no descriptor could be had.
  absl::Time paused_until() const { return paused_until_; }
  bool is_paused(absl::Time now) const { return paused_until_ > now; }

  // Calls take(FileDescriptor, sockaddr_storage, socklen_t) for each of those that wait, and
  // make_room() where the process has no descriptor left: false where it could free none.
  template <typename Take, typename MakeRoom>
  void Accept(const FileDescriptor& listener, const Take& take, const MakeRoom& make_room) {
    for (int i = 0; i < kMaxAtOnce; ++i) {
      sockaddr_storage peer{};
      socklen_t length = sizeof(peer);
      FileDescriptor fd(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.is_open()) {
        take(std::move(fd), peer, length);
        continue;
      }
      if (errno == EAGAIN) return;
      // Otherwise that one connection is gone.
      if (!net::IsOutOfDescriptors(errno) || make_room()) continue;
      paused_until_ = absl::Now() + kPause;
      return;
    }
  }

 private:
  static constexpr int kMaxAtOnce = 64;
  static constexpr absl::Duration kPause = absl::Milliseconds(100);

  absl::Time paused_until_ = absl::InfinitePast();
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_ACCEPTOR_H_
