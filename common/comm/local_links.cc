#include "common/comm/local_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/link_mesh.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

// Anyone on the host can connect to an abstract socket, and these links hand over memory.
bool IsOurUser(const host::FileDescriptor& fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

// Most bytes in flight on a stream: enough that neither side waits for the other to be scheduled,
// few enough to be in the cache still when they are received.
constexpr int kStreamBytes = 512 << 10;

// Between attempts to connect to a listener whose queue is full.
constexpr absl::Duration kQueuePause = absl::Milliseconds(5);

class LocalFamily : public LinkFamily {
 public:
  // `type`: SOCK_SEQPACKET keeps the bounds of messages, SOCK_STREAM does not.
  explicit LocalFamily(int type) : type_(type) {}

  // Under a name that the system chooses.
  absl::StatusOr<Listener> Listen(int backlog) override {
    Listener out;
    ASSIGN_OR_RETURN(out.fd, NewSocket());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(address);
    if (bind(out.fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0 ||
        listen(out.fd.get(), backlog) != 0 ||
        getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return SocketError("local socket");
    }
    out.address.assign(reinterpret_cast<const char*>(&address), length);
    return out;
  }

  absl::StatusOr<host::FileDescriptor> Connect(const std::string& address, absl::Time deadline,
                                               const Cancelled& cancelled) override {
    ASSIGN_OR_RETURN(host::FileDescriptor fd, NewSocket());
    sockaddr_un to = {};
    if (address.size() > sizeof(to))
      return absl::UnavailableError("the socket's address is too long");
    std::memcpy(&to, address.data(), address.size());
    while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to),
                   static_cast<socklen_t>(address.size())) != 0) {
      // The listener's queue is full, maybe of strangers.
      if (errno != EAGAIN && errno != EINTR) return SocketError("local socket");
      if (cancelled != nullptr && cancelled()) {
        return absl::CancelledError("local socket: cancelled");
      }
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            "local socket: deadline exceeded; the peer's queue is full");
      }
      absl::SleepFor(kQueuePause);
    }
    if (!IsOurUser(fd)) return absl::UnavailableError("it belongs to another user");
    return fd;
  }

  bool Admit(const host::FileDescriptor& fd) override {
    HoldMuch(fd);
    return IsOurUser(fd);
  }
  std::string NameOf(const sockaddr_storage&, socklen_t) const override { return "this host"; }

 private:
  absl::StatusOr<host::FileDescriptor> NewSocket() const {
    host::FileDescriptor fd(socket(AF_UNIX, type_ | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.is_open()) return SocketError("local socket");
    HoldMuch(fd);
    return fd;
  }

  // Sets a stream's buffer to kStreamBytes, as far as the system allows it.
  void HoldMuch(const host::FileDescriptor& fd) const {
    if (type_ != SOCK_STREAM) return;
    // SO_SNDBUF is capped by net.core.wmem_max; SO_SNDBUFFORCE is not, but needs CAP_NET_ADMIN.
    if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kStreamBytes, sizeof(kStreamBytes)) == 0)
      return;
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kStreamBytes, sizeof(kStreamBytes));
  }

  const int type_;
};

// A message of one number with room for a descriptor, to send or to receive into.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const host::FileDescriptor& file, uint64_t number) : DescriptorMessage() {
    id = number;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = file.get();
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  DescriptorMessage(const DescriptorMessage&) = delete;  // the header points into it
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  msghdr header = {};
  uint64_t id = 0;
  iovec data = {&id, sizeof(id)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

std::string LocalLinks::Place() {
  // The boot id names the host; abstract socket names exist within one network namespace; and peers
  // of another user are refused.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char network[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/ns/net", network, sizeof(network) - 1);
  if (boot.empty() || length <= 0) return "";
  return absl::StrCat(boot, " ", network, " ", geteuid());
}

absl::StatusOr<std::unique_ptr<LocalLinks>> LocalLinks::Connect(int rank, int size,
                                                                StoreConnection& store,
                                                                absl::Time deadline,
                                                                const Cancelled& cancelled) {
  LocalFamily family(SOCK_SEQPACKET);
  ASSIGN_OR_RETURN(auto links, ConnectMesh(family, rank, size, store, deadline, cancelled));
  return absl::WrapUnique(new LocalLinks(std::move(links)));
}

absl::Status LocalLinks::SendFile(const host::FileDescriptor& file, absl::Time deadline,
                                  const Cancelled& cancelled) {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (!links_[peer].is_open()) continue;
    const std::string what = absl::StrCat("handing shared memory to rank ", peer);
    RETURN_IF_ERROR(AwaitSocket(links_[peer], POLLOUT, deadline, cancelled, what));
    const DescriptorMessage message(file, 0);
    if (sendmsg(links_[peer].get(), &message.header, MSG_NOSIGNAL) < 0) return SocketError(what);
  }
  return absl::OkStatus();
}

absl::StatusOr<host::FileDescriptor> LocalLinks::ReceiveFile(int from, absl::Time deadline,
                                                             const Cancelled& cancelled) {
  const std::string what = absl::StrCat("taking shared memory from rank ", from);
  RETURN_IF_ERROR(AwaitSocket(links_[from], POLLIN, deadline, cancelled, what));
  ASSIGN_OR_RETURN(auto handed, TakeHanded(from));
  if (!handed.has_value()) return absl::UnavailableError(absl::StrCat(what, ": nothing arrived"));
  return std::move(handed->second);
}

bool LocalLinks::Hand(int to, const host::FileDescriptor& file, uint64_t id) {
  const DescriptorMessage message(file, id);
  return sendmsg(links_[to].get(), &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

absl::StatusOr<std::optional<std::pair<uint64_t, host::FileDescriptor>>> LocalLinks::TakeHanded(
    int from) {
  const std::string what = absl::StrCat("taking shared memory from rank ", from);
  DescriptorMessage message;
  const ssize_t received =
      recvmsg(links_[from].get(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
  if (received == 0) return absl::UnavailableError(absl::StrCat(what, ": its process has ended"));
  if (received < 0) return SocketError(what);
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS) {
    return absl::UnavailableError(absl::StrCat(what, ": received no file descriptor"));
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(control), sizeof(fd));
  return std::make_pair(message.id, host::FileDescriptor(fd));
}

uint64_t LocalLinks::Ended() const {
  std::vector<pollfd> entries;
  for (const host::FileDescriptor& link : links_) entries.push_back({link.get(), POLLRDHUP, 0});
  if (poll(entries.data(), entries.size(), 0) <= 0) return 0;
  uint64_t ended = 0;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if ((entries[rank].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) {
      ended |= uint64_t{1} << rank;
    }
  }
  return ended;
}

absl::StatusOr<std::vector<host::FileDescriptor>> ConnectLocalStreams(int rank, int size,
                                                                      StoreConnection& store,
                                                                      absl::Time deadline,
                                                                      const Cancelled& cancelled) {
  LocalFamily family(SOCK_STREAM);
  return ConnectMesh(family, rank, size, store, deadline, cancelled);
}

}  // namespace tandem::comm
