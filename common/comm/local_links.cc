#include "common/comm/local_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr size_t kSecretBytes = 16;

// Who connects, and how it proves that it read the store.
struct Greeting {
  int32_t rank = -1;
  std::array<char, kSecretBytes> secret = {};
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<FileDescriptor> NewSocket() {
  // Keeps the bounds of messages.
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return SystemError("local socket");
  return fd;
}

// Waits until the socket is ready for `events`.
absl::Status Await(const FileDescriptor& fd, short events, absl::Time deadline,
                   const Cancelled& cancelled, absl::string_view what) {
  while (true) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError(absl::StrCat(what, ": cancelled"));
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": deadline exceeded"));
    }
    pollfd entry = {fd.get(), events, 0};
    const int ready = poll(
        &entry, 1, static_cast<int>(std::min<int64_t>(20, absl::ToInt64Milliseconds(left) + 1)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError(what);
  }
}

bool IsOurUser(const FileDescriptor& fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

// A socket that listens under a name that the system chose.
struct Listener {
  FileDescriptor fd;
  std::string address;  // of sockaddr_un, as bytes
  std::array<char, kSecretBytes> secret;
};

absl::StatusOr<Listener> Listen(int backlog) {
  Listener out;
  ASSIGN_OR_RETURN(out.fd, NewSocket());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof(address);
  if (bind(out.fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0 ||
      listen(out.fd.get(), backlog) != 0 ||
      getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return SystemError("local socket");
  }
  out.address.assign(reinterpret_cast<const char*>(&address), length);
  std::random_device random;
  for (char& c : out.secret) c = static_cast<char>(random());
  return out;
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& address, const Greeting& greeting,
                                         absl::string_view what) {
  ASSIGN_OR_RETURN(FileDescriptor fd, NewSocket());
  sockaddr_un to = {};
  if (address.size() > sizeof(to)) {
    return absl::UnavailableError(absl::StrCat(what, ": its address is too long"));
  }
  std::memcpy(&to, address.data(), address.size());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to),
              static_cast<socklen_t>(address.size())) != 0) {
    return SystemError(what);
  }
  if (!IsOurUser(fd)) return absl::UnavailableError(absl::StrCat(what, ": it is another user's"));
  if (send(fd.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting)) {
    return SystemError(what);
  }
  return fd;
}

// A message of one byte with room for a descriptor beside it, to be filled in or received.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;  // the header points into it
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  msghdr header = {};
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

std::string RankKey(int rank) { return absl::StrCat("links/", rank); }

}  // namespace

std::string LocalLinks::Place() {
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
  std::unique_ptr<LocalLinks> links(new LocalLinks(size));
  ASSIGN_OR_RETURN(const Listener listener, Listen(size));
  const std::string secret(listener.secret.data(), listener.secret.size());
  RETURN_IF_ERROR(store.Set(
      RankKey(rank),
      absl::StrCat(absl::BytesToHexString(listener.address), " ", absl::BytesToHexString(secret)),
      deadline));

  for (int peer = 0; peer < rank; ++peer) {
    RETURN_IF_ERROR(store.WaitFor(RankKey(peer), deadline, cancelled));
    ASSIGN_OR_RETURN(const std::string entry, store.Read(RankKey(peer), deadline, cancelled));
    const std::string what = absl::StrCat("local connection to rank ", peer);
    const std::vector<std::string> parts = absl::StrSplit(entry, ' ');
    Greeting greeting;
    greeting.rank = rank;
    const std::string its_secret = parts.size() == 2 ? absl::HexStringToBytes(parts[1]) : "";
    if (its_secret.size() != kSecretBytes) {
      return absl::UnavailableError(absl::StrCat(what, ": the store has no address of it"));
    }
    std::copy(its_secret.begin(), its_secret.end(), greeting.secret.begin());
    ASSIGN_OR_RETURN(links->links_[peer],
                     ConnectTo(absl::HexStringToBytes(parts[0]), greeting, what));
  }

  for (int missing = size - 1 - rank; missing > 0;) {
    RETURN_IF_ERROR(
        Await(listener.fd, POLLIN, deadline, cancelled, "local connection of a higher rank"));
    FileDescriptor fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.is_open() || !IsOurUser(fd)) continue;
    // The greeting was sent before the connection was accepted, or nearly so.
    RETURN_IF_ERROR(Await(fd, POLLIN, deadline, cancelled, "greeting of a higher rank"));
    Greeting greeting;
    if (recv(fd.get(), &greeting, sizeof(greeting), 0) != sizeof(greeting) ||
        greeting.secret != listener.secret || greeting.rank <= rank || greeting.rank >= size ||
        links->links_[greeting.rank].is_open()) {
      continue;  // a stranger
    }
    links->links_[greeting.rank] = std::move(fd);
    --missing;
  }
  return links;
}

absl::Status LocalLinks::SendFile(const FileDescriptor& file, absl::Time deadline,
                                  const Cancelled& cancelled) {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (!links_[peer].is_open()) continue;
    const std::string what = absl::StrCat("handing shared memory to rank ", peer);
    RETURN_IF_ERROR(Await(links_[peer], POLLOUT, deadline, cancelled, what));
    DescriptorMessage message;
    cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = file.get();
    std::memcpy(CMSG_DATA(control), &fd, sizeof(fd));
    if (sendmsg(links_[peer].get(), &message.header, MSG_NOSIGNAL) != 1) return SystemError(what);
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> LocalLinks::ReceiveFile(int from, absl::Time deadline,
                                                       const Cancelled& cancelled) {
  const std::string what = absl::StrCat("taking shared memory from rank ", from);
  RETURN_IF_ERROR(Await(links_[from], POLLIN, deadline, cancelled, what));
  DescriptorMessage message;
  const ssize_t received = recvmsg(links_[from].get(), &message.header, MSG_CMSG_CLOEXEC);
  if (received == 0) return absl::UnavailableError(absl::StrCat(what, ": it has ended"));
  if (received < 0) return SystemError(what);
  const cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_type != SCM_RIGHTS) {
    return absl::UnavailableError(absl::StrCat(what, ": found something else"));
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(control), sizeof(fd));
  return FileDescriptor(fd);
}

uint64_t LocalLinks::Ended() const {
  std::vector<pollfd> entries;
  for (const FileDescriptor& link : links_) entries.push_back({link.get(), POLLRDHUP, 0});
  if (poll(entries.data(), entries.size(), 0) <= 0) return 0;
  uint64_t ended = 0;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if ((entries[rank].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0) {
      ended |= uint64_t{1} << rank;
    }
  }
  return ended;
}

}  // namespace tandem::comm
