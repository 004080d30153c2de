// comm_peer PORT RANK SIZE ACTION BACKEND: a rank of the group "test" in a process of its own.
// BACKEND is Gloo, SharedMemory, SharedMessages, Socket, LocalSocket, or a word of CreateGroupOf()
// for tensors on the GPU. Joins, prints "joined", then: "idle" does nothing until it is killed;
// "broadcast" takes part in broadcasts of one MiB from rank 0 until one fails, and exits with 3.
#include <ATen/ATen.h>
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
                      backend != "Socket" && backend != "LocalSocket" && backend != "Gloo";
  auto group = on_gpu                        ? tandem::comm::CreateGroupOf(backend, options)
               : backend == "SharedMemory"   ? tandem::comm::CreateSharedMemoryGroup(options)
               : backend == "SharedMessages" ? tandem::comm::CreateSharedMessageGroup(options)
               : backend == "Socket"         ? tandem::comm::CreateSocketGroup(options)
               : backend == "LocalSocket"    ? tandem::comm::CreateLocalSocketGroup(options)
                                             : tandem::comm::CreateGlooGroup(options);
  if (!group.ok()) {
    std::fprintf(stderr, "%s\n", group.status().ToString().c_str());
    return 1;
  }
  std::printf("joined\n");
  std::fflush(stdout);
  if (std::string(argv[4]) == "idle") {
    while (true) pause();
  }
  at::Tensor bytes =
      at::zeros({1 << 20}, at::TensorOptions(at::kByte).device(on_gpu ? at::kCUDA : at::kCPU));
  while (true) {
    auto work = (*group)->Broadcast(bytes, 0, "bytes");
    if (!work.ok() || !tandem::comm::WaitOnHost(**group, **work).ok()) return 3;
  }
}
