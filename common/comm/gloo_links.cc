#include "common/comm/gloo_links.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/run_with_deadline.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "gloo/transport/tcp/address.h"

// Declares the parts of LibTorch's Gloo that this file uses: Debian's headers are of an older Gloo.
// Pairs call Device::connect() through the PLT, so this file's definition, which the executable
// exports, replaces Gloo's.
namespace gloo::transport::tcp {

class Handler;

class Socket : public std::enable_shared_from_this<Socket> {
 public:
  explicit Socket(int fd);  // owns it
  ~Socket();

 private:
  int fd_;
};

class Error {
 public:
  static const Error kSuccess;
};

class Device {
 public:
  using ConnectCallback = std::function<void(std::shared_ptr<Socket>, const Error&)>;

  // Gloo's. Returns once no handler of `fd` runs or will run.
  void unregisterDescriptor(int fd, Handler* handler);

  // Ours. `local` and `remote`: the addresses of the two ends of a pair. Calls `done` later, from
  // another thread: the pair holds its lock.
  ABSL_ATTRIBUTE_NOINLINE __attribute__((visibility("default"), used)) void connect(
      const Address& local, const Address& remote, int rank, int size,
      std::chrono::milliseconds timeout, ConnectCallback done);
};

}  // namespace gloo::transport::tcp

namespace tandem::comm {
namespace {

using gloo::transport::tcp::Device;
using gloo::transport::tcp::Error;
using gloo::transport::tcp::Socket;

constexpr char kConnectSymbol[] =
    "_ZN4gloo9transport3tcp6Device7connectERKNS1_7AddressES5_iiNSt6chrono8durationIlSt5ratioILl1"
    "ELl1000EEEESt8functionIFvSt10shared_ptrINS1_6SocketEERKNS1_5ErrorEEE";

// Whether pairs call the connect() of this file, and LibTorch's is the one that it stands for.
absl::Status CheckSymbols() {
  const void* const called = dlsym(RTLD_DEFAULT, kConnectSymbol);
  void* theirs = nullptr;
  if (void* const torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD); torch != nullptr) {
    theirs = dlsym(torch, kConnectSymbol);
    dlclose(torch);
  }
  if (called != nullptr && theirs != nullptr && called != theirs) return absl::OkStatus();
  return absl::InternalError(
      "cannot pass connections to Gloo: expected the Gloo of LibTorch 2.11 in a program that "
      "exports gloo::transport::tcp::Device::connect()");
}

std::string Thrown(const std::exception& error) { return FirstLine(error.what()); }

// The descriptor of the socket of this process that listens at `address` of IPv4.
absl::StatusOr<int> FindListener(const std::string& address) {
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir("/proc/self/fd"), close_folder);
  if (folder == nullptr) {
    return absl::UnavailableError(absl::StrCat("/proc/self/fd: ", std::strerror(errno)));
  }
  in_addr wanted{};
  inet_pton(AF_INET, address.c_str(), &wanted);
  while (const dirent* const entry = readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t length = sizeof(listens);
    sockaddr_in bound{};
    if (entry->d_name[0] == '.' ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
      continue;
    }
    length = sizeof(bound);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) == 0 &&
        bound.sin_family == AF_INET && bound.sin_addr.s_addr == wanted.s_addr) {
      return fd;
    }
  }
  return absl::InternalError(absl::StrCat("Gloo's listener at ", address, " was not found"));
}

// A loopback address that nobody else in this process listens at, and no stranger guesses.
std::string DrawLoopbackAddress() {
  const std::string bytes = security::DrawSecret(3);
  const auto octet = [&](int i) { return static_cast<uint8_t>(bytes[i]); };
  return absl::StrCat("127.", octet(0), ".", octet(1), ".", 1 + octet(2) % 254);
}

class DeviceLinks : public GlooLinks {
 public:
  static absl::StatusOr<std::unique_ptr<GlooLinks>> Create(
      std::vector<host::FileDescriptor> sockets) {
    RETURN_IF_ERROR(CheckSymbols());
    auto out = absl::WrapUnique(new DeviceLinks(std::move(sockets)));
    const std::string address = DrawLoopbackAddress();
    try {
      out->device_ = c10d::ProcessGroupGloo::createDeviceForHostname(address);
      RETURN_IF_ERROR(out->CloseListener(address));
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat("Gloo's device: ", Thrown(error)));
    }
    absl::MutexLock lock(&mu_);
    by_device_[out->tcp_device()] = out.get();
    return out;
  }

  ~DeviceLinks() override {
    if (device_ == nullptr) return;
    {
      absl::MutexLock lock(&mu_);
      by_device_.erase(tcp_device());
    }
    for (std::thread& thread : threads_) thread.join();
  }

  const std::shared_ptr<gloo::transport::Device>& device() const override { return device_; }

  // Hands the connection to `peer` over. On the thread that makes the group, as all of a group's.
  static void HandOver(Device* device, int64_t peer, bool is_pair_of_rank,
                       Device::ConnectCallback done) {
    DeviceLinks* links = nullptr;
    {
      absl::MutexLock lock(&mu_);
      if (const auto it = by_device_.find(device); it != by_device_.end()) links = it->second;
    }
    if (links == nullptr || !is_pair_of_rank || peer < 0 ||
        peer >= static_cast<int64_t>(links->sockets_.size()) || !links->sockets_[peer].is_open()) {
      throw std::runtime_error(
          absl::StrCat("Gloo asks for a connection that it was not given, to rank ", peer,
                       ": expected exactly one connection per peer"));
    }
    links->threads_.emplace_back([fd = links->sockets_[peer].Release(), done = std::move(done)] {
      done(std::make_shared<Socket>(fd), Error::kSuccess);
    });
  }

 private:
  explicit DeviceLinks(std::vector<host::FileDescriptor> sockets) : sockets_(std::move(sockets)) {}

  Device* tcp_device() const { return static_cast<Device*>(dynamic_cast<void*>(device_.get())); }

  // Gloo closes this descriptor's number when the device goes. Until then the number must not
  // become another file's, so /dev/null takes the socket's place.
  absl::Status CloseListener(const std::string& address) {
    ASSIGN_OR_RETURN(const int fd, FindListener(address));
    tcp_device()->unregisterDescriptor(fd, nullptr);
    const host::FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!nothing.is_open() || dup3(nothing.get(), fd, O_CLOEXEC) < 0) {
      return absl::UnavailableError(
          absl::StrCat("closing Gloo's listener: ", std::strerror(errno)));
    }
    return absl::OkStatus();
  }

  static absl::Mutex mu_;
  static std::map<Device*, DeviceLinks*> by_device_ ABSL_GUARDED_BY(mu_);

  std::vector<host::FileDescriptor> sockets_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::vector<std::thread> threads_;
};

absl::Mutex DeviceLinks::mu_(absl::kConstInit);
std::map<Device*, DeviceLinks*> DeviceLinks::by_device_;

}  // namespace

absl::StatusOr<std::unique_ptr<GlooLinks>> GlooLinks::Create(
    std::vector<host::FileDescriptor> sockets) {
  return DeviceLinks::Create(std::move(sockets));
}

}  // namespace tandem::comm

namespace gloo::transport::tcp {

// A context makes a pair for each rank in turn, so that the number in a pair's address is the rank
// of its peer, and that in the peer's is ours.
void Device::connect(const Address& local, const Address& remote, int rank, int /*size*/,
                     std::chrono::milliseconds /*timeout*/, ConnectCallback done) {
  tandem::comm::DeviceLinks::HandOver(this, local.getSeq(), remote.getSeq() == rank,
                                      std::move(done));
}

}  // namespace gloo::transport::tcp
