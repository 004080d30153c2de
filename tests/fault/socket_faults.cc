#include "tests/fault/socket_faults.h"

#include <dirent.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace tandem::testing {
namespace {

constexpr uint32_t kLossThreshold = 0xffffffffu / 100 * 5;

std::atomic<SocketFault> current{SocketFault::kNone};

int OptionOf(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

bool IsTcp(int fd) {
  const int domain = OptionOf(fd, SO_DOMAIN);
  return OptionOf(fd, SO_TYPE) == SOCK_STREAM && (domain == AF_INET || domain == AF_INET6);
}

// Connections that are accepted inherit the filter of the socket that listens.
void Apply(int fd, SocketFault fault) {
  constexpr uint32_t kRandom = static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_RANDOM);
  std::array<sock_filter, 4> lose = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kRandom),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kLossThreshold, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffffffffu),  // keeps all of the segment
      BPF_STMT(BPF_RET | BPF_K, 0),            // drops it
  }};
  const bool silent = fault == SocketFault::kSilence;
  const sock_fprog program = silent ? sock_fprog{1, &lose[3]} : sock_fprog{4, lose.data()};
  if (fault == SocketFault::kNone) {
    const int unused = 0;
    setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
  } else {
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  }
}

template <typename Body>
void ForEachTcpSocket(const Body& body) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) std::abort();
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && IsTcp(fd)) body(fd);
  }
  closedir(folder);
}

}  // namespace

void SetSocketFault(SocketFault fault) {
  current = fault;  // first: a socket that is made meanwhile has it too
  ForEachTcpSocket([fault](int fd) { Apply(fd, fault); });
}

void CutConnections() {
  SetSocketFault(SocketFault::kSilence);
  ForEachTcpSocket([](int fd) {
    if (OptionOf(fd, SO_ACCEPTCONN) == 0) shutdown(fd, SHUT_RDWR);
  });
}

}  // namespace tandem::testing

// Stands before the C library's, for the whole process.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  using tandem::testing::SocketFault;
  const auto fd = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  const SocketFault fault = tandem::testing::current;
  if (fd >= 0 && fault != SocketFault::kNone && tandem::testing::IsTcp(fd)) {
    tandem::testing::Apply(fd, fault);
  }
  return fd;
}
