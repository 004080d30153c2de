// CommandQueue: calls waiting for the collective thread, in FIFO order and bounded in number.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_COMMAND_QUEUE_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_COMMAND_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::trainer {

// Thread-safe. Hands out every accepted command once, also after Close(); whoever takes it answers
// its caller.
class CommandQueue {
 public:
  using Command = std::function<void()>;

  explicit CommandQueue(size_t max_waiting) : max_waiting_(max_waiting) {}

  // RESOURCE_EXHAUSTED if the queue is full, UNAVAILABLE after Close(). Never blocks.
  absl::Status Submit(Command command);

  // The next command; nullopt if none came within `timeout`, or none is left after Close().
  std::optional<Command> Next(absl::Duration timeout);

  void Close();
  // Closed, with every command handed out.
  bool IsFinished() const;

 private:
  const size_t max_waiting_;
  mutable absl::Mutex mu_;
  std::deque<Command> waiting_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_COMMAND_QUEUE_H_
