// What a reward worker's process writes into its socket, which the user's function shares: messages
// with their lengths, of which the first names the function and the others have rewards.
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "absl/time/clock.h"
#include "common/host/file_descriptor.h"
#include "tools/tandem/reward/message_socket.h"
#include "tools/tandem/reward/worker_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::reward;  // NOLINT: the driver's side
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  MessageSocket driver{tandem::host::FileDescriptor(ends[0])};
  {
    const tandem::host::FileDescriptor worker(ends[1]);
    const size_t sent = std::min<size_t>(size, 64 << 10);  // the socket's buffer holds them
    if (send(worker.get(), data, sent, MSG_NOSIGNAL) != static_cast<ssize_t>(sent)) std::abort();
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (true) {
    const auto text = driver.Receive(deadline);
    if (absl::IsDeadlineExceeded(text.status())) std::abort();  // the other end is closed
    if (!text.ok()) return 0;
    const auto message = ParseWorkerMessage(*text);
    if (!message.ok()) continue;
    (void)ParseHello(*message).status();
    const auto rewards = ParseRewards(*message);
    if (rewards.ok() && rewards->size() > text->size()) std::abort();
  }
}
