#include "tests/simulator/stream_thread.h"

#include <ATen/Parallel.h>

#include <thread>
#include <utility>

#include "absl/time/clock.h"

namespace tandem::testing {

StreamThread::StreamThread() {
  std::thread([this] { Run(); }).detach();
}

void StreamThread::SetDelays(uint64_t seed, absl::Duration longest) {
  absl::MutexLock lock(&mu_);
  random_.seed(seed);
  longest_ = longest;
  // Some streams are quick and some are slow, so that either may fall far behind the other.
  rarity_ = uint64_t{4} << (random_() % 4);
}

void StreamThread::Push(std::function<void()> run) {
  absl::MutexLock lock(&mu_);
  queue_.push_back(std::move(run));
}

bool StreamThread::IsDone(uint64_t count) {
  absl::MutexLock lock(&mu_);
  return done_ >= count;
}

void StreamThread::Await(uint64_t count) {
  absl::MutexLock lock(&mu_);
  const auto done = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return done_ >= count; };
  mu_.Await(absl::Condition(&done));
}

absl::Duration StreamThread::DrawDelay() {
  if (longest_ == absl::ZeroDuration() || random_() % rarity_ != 0) return absl::ZeroDuration();
  return longest_ * std::uniform_real_distribution<double>(0, 1)(random_);
}

void StreamThread::Run() {
  at::set_num_threads(1);
  while (true) {
    std::function<void()> run;
    absl::Duration delay;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !queue_.empty(); };
      mu_.Await(absl::Condition(&has_work));
      run = std::move(queue_.front());
      queue_.pop_front();
      delay = DrawDelay();
    }
    if (delay > absl::ZeroDuration()) absl::SleepFor(delay);
    run();
    run = nullptr;
    absl::MutexLock lock(&mu_);
    ++done_;
  }
}

}  // namespace tandem::testing
