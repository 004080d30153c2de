// Clients that mean harm.
#ifndef TANDEM_TESTS_SUPPORT_HOSTILE_CLIENTS_H_
#define TANDEM_TESTS_SUPPORT_HOSTILE_CLIENTS_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"

namespace tandem::testing {

inline host::FileDescriptor ConnectTo(int port) {
  host::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (!fd.is_open() ||
      connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return host::FileDescriptor();
  }
  return fd;
}

// Some are silent, the others send the beginning of a handshake and no more.
inline host::FileDescriptor ConnectAndWait(int port, bool begins_handshake) {
  host::FileDescriptor fd = ConnectTo(port);
  if (fd.is_open() && begins_handshake) send(fd.get(), "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL);
  return fd;
}

// Idle connections out of a process of their own: of both ends, one could not have as many.
class IdleClients {
 public:
  IdleClients(int port, int count) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    const host::FileDescriptor here(ends[0]);
    host::FileDescriptor there(ends[1]);
    pid_ = fork();
    if (pid_ == 0) Hold(port, count, there.get());
    there = host::FileDescriptor();  // so that the end of the child is seen
    if (pid_ < 0 || read(here.get(), &num_open_, sizeof(num_open_)) != sizeof(num_open_)) {
      num_open_ = 0;
    }
  }
  ~IdleClients() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int num_open() const { return num_open_; }

 private:
  // Calls the system alone: the child has but this thread of its parent's.
  [[noreturn]] static void Hold(int port, int count, int answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit files{};  // its parent may have fewer, to be the one that runs out of them
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    static std::array<host::FileDescriptor, 10000> open;
    int num_open = 0;
    while (num_open < std::min<int>(count, open.size())) {
      open[num_open] = ConnectAndWait(port, num_open % 2 == 0);
      if (!open[num_open].is_open()) break;
      ++num_open;
    }
    if (write(answer, &num_open, sizeof(num_open)) != sizeof(num_open)) _exit(1);
    for (;;) pause();
  }

  pid_t pid_ = -1;
  int num_open_ = 0;
};

// Sends a gigabyte in one message, in plaintext: over TLS the client, in this process, would
// encrypt it all at once. `authorization`: what the caller shows, unless empty.
inline absl::Status SendAGigabyte(const std::string& address, const std::string& method,
                                  const std::string& authorization = "", int mebibytes = 1024) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  // The same mebibyte a thousand times: this process has not a gigabyte to spare either.
  const grpc::Slice mebibyte(std::string(1 << 20, 'x'));
  const std::vector<grpc::Slice> slices(mebibytes, mebibyte);
  const grpc::ByteBuffer request(slices.data(), slices.size());
  grpc::ByteBuffer response;
  const auto context = rpc::MakeContext(absl::Minutes(3));
  if (!authorization.empty()) context->AddMetadata("authorization", authorization);
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(context.get(), method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status result) {
                   status = std::move(result);
                   done.Notify();
                 });
  done.WaitForNotification();  // the deadline bounds it
  return rpc::FromGrpcStatus(status);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HOSTILE_CLIENTS_H_
