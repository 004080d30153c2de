#include "common/rpc/termination_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace tandem::rpc {

TerminationSignal::TerminationSignal() {
  sigemptyset(&watched_);
  sigaddset(&watched_, SIGTERM);
  sigaddset(&watched_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &watched_, &former_);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  signal_fd_ = signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
  watcher_ = std::thread([this] { WatchSignals(); });
}

TerminationSignal::~TerminationSignal() {
  const uint64_t one = 1;
  while (write(stop_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  watcher_.join();
  close(signal_fd_);
  close(stop_fd_);
  pthread_sigmask(SIG_SETMASK, &former_, nullptr);
}

int TerminationSignal::Wait() { return WaitFor(absl::InfiniteDuration()); }

int TerminationSignal::WaitFor(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(
                           +[](int* received) { return *received != 0; }, &received_),
                       timeout);
  return received_;
}

void TerminationSignal::OnSignal(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mu_);
    if (received_ == 0) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void TerminationSignal::Trigger(int signal) {
  std::vector<std::function<void()>> callbacks;
  {
    absl::MutexLock lock(&mu_);
    if (received_ != 0) return;
    received_ = signal;
    callbacks.swap(callbacks_);
  }
  for (const auto& callback : callbacks) callback();
}

void TerminationSignal::WatchSignals() {
  int count = 0;
  while (true) {
    pollfd wait[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(wait, 2, -1) < 0) continue;  // EINTR
    if (wait[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (++count > 1) _exit(128 + signal);
    Trigger(signal);
  }
}

}  // namespace tandem::rpc
