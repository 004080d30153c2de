// comm_peer PORT RANK SIZE ACTION BACKEND: a rank of the group "test" in a process of its own.
// BACKEND is Gloo, SharedMemory, SharedMessages, Socket, LocalSocket, Tls, TlsSocket, or a word of
// CreateGroupOf() for tensors on the GPU. Joins, prints "joined", then: "idle" does nothing until
// it is killed; "broadcast" takes part in broadcasts of one MiB from rank 0 until one fails, and
// exits with 3; "take" and "give" receive 64 MiB from rank 0 and send them to it, "take_broadcast"
// and "give_broadcast" do so by a broadcast: in memory of which the second half is out of reach, so
// that it fails in the middle of the message.
#include <ATen/ATen.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/comm/shared_message_group.h"
#include "common/comm/wait_on_host.h"
#include "tests/common/comm/encrypted_groups.h"

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  tandem::comm::GroupOptions options;
  options.name = "test";
  options.rendezvous.port = std::atoi(argv[1]);
  options.rendezvous.prefix = "test";
  options.rank = std::atoi(argv[2]);
  options.size = std::atoi(argv[3]);
  options.timeout = absl::Seconds(60);
  const std::string backend = argv[5];
  const bool on_gpu = backend != "SharedMemory" && backend != "SharedMessages" &&
                      backend != "Socket" && backend != "LocalSocket" && backend != "Gloo" &&
                      backend != "Tls" && backend != "TlsSocket";
  auto group = on_gpu                        ? tandem::comm::CreateGroupOf(backend, options)
               : backend == "SharedMemory"   ? tandem::comm::CreateSharedMemoryGroup(options)
               : backend == "SharedMessages" ? tandem::comm::CreateSharedMessageGroup(options)
               : backend == "Socket"         ? tandem::comm::CreateSocketGroup(options)
               : backend == "LocalSocket"    ? tandem::comm::CreateLocalSocketGroup(options)
               : backend == "Tls"            ? tandem::comm::CreateTlsGroup(options)
               : backend == "TlsSocket"      ? tandem::comm::CreateTlsSocketGroup(options)
                                             : tandem::comm::CreateGlooGroup(options);
  if (!group.ok()) {
    std::fprintf(stderr, "%s\n", group.status().ToString().c_str());
    return 1;
  }
  std::printf("joined\n");
  std::fflush(stdout);
  const std::string action = argv[4];
  if (action == "idle") {
    while (true) pause();
  }
  const at::TensorOptions kind = at::TensorOptions(at::kByte).device(on_gpu ? at::kCUDA : at::kCPU);
  if (action != "broadcast") {
    constexpr size_t kBytes = size_t{64} << 20;
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED ||
        mprotect(static_cast<char*>(memory) + kBytes / 2, kBytes / 2, PROT_NONE) != 0)
      return 1;
    at::Tensor bytes = at::from_blob(memory, {static_cast<int64_t>(kBytes)}, kind);
    auto work =
        action == "take" ? (*group)->Receive(bytes, 0, "bytes")
        : action == "give"
            ? (*group)->Send(bytes, 0, "bytes")
            : (*group)->Broadcast(bytes, action == "take_broadcast" ? 0 : options.rank, "bytes");
    if (!work.ok()) return 3;
    return (*work)->Wait().ok() ? 0 : 3;
  }
  at::Tensor bytes = at::zeros({1 << 20}, kind);
  while (true) {
    auto work = (*group)->Broadcast(bytes, 0, "bytes");
    if (!work.ok() || !tandem::comm::WaitOnHost(**group, **work).ok()) return 3;
  }
}
