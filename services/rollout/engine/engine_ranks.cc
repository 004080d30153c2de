// The engine thread: sleep mode, and the other ranks of the replica.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/telemetry/log.h"
#include "services/rollout/engine/engine.h"

namespace tandem::rollout {

void Engine::ReleaseMemory(const Release& release) {
  if (!release.any() || !lost_.ok()) return;
  scheduler_.RecomputeAll();
  RestartScores();
  if (encoder_.has_value()) encoder_->Clear();
  if (release.kv_cache) {
    runner_->ReleaseCache();
    ++num_releases_;
    SetCacheRoot();
    released_.kv_cache = true;
  }
  if (release.weights) {
    live_ = nullptr;
    weights_.Release();
    runner_->ReleaseUnused();
    released_.weights = version_ >= 0;
    if (options_.on_weights_released) options_.on_weights_released();
  }
  if (options_.ranks == nullptr) return;
  const absl::Status released = options_.ranks->Release(release.kv_cache, release.weights);
  if (!released.ok()) LoseRanks(released);
}

void Engine::ReloadRanks(int64_t version, std::function<void()> done) {
  Post([this, version, done = std::move(done)] {
    if (options_.ranks != nullptr && lost_.ok()) {
      const absl::Status begun = options_.ranks->Reload(version);
      if (!begun.ok()) LoseRanks(begun);
    }
    done();
  });
}

absl::Time Engine::NextPeriodicTask() const {
  if (options_.ranks == nullptr || !lost_.ok()) return absl::InfiniteFuture();
  const absl::Time heartbeat = options_.ranks->next_heartbeat();
  return swap_ == nullptr ? heartbeat : std::min(heartbeat, next_try_);
}

void Engine::RunPeriodicTasks() {
  if (absl::Now() < NextPeriodicTask()) return;
  if (swap_ != nullptr) {
    TrySwap();
    finished_.clear();
    RunWhenIdle();
    UpdateInfo();
  }
  if (lost_.ok() && absl::Now() >= options_.ranks->next_heartbeat()) {
    const absl::Status heard = options_.ranks->SendHeartbeat();
    if (!heard.ok()) LoseRanks(heard);
  }
}

void Engine::LoseRanks(const absl::Status& error) {
  if (!lost_.ok()) return;
  telemetry::LogError("the replica's ranks lost contact",
                      {{"rank", 0}, {"error", error.ToString()}});
  lost_ = options_.ranks->Explain(error);
  telemetry::LogError("the replica cannot continue", {{"error", lost_.ToString()}});
  {
    absl::MutexLock lock(&mu_);
    refusal_ = lost_;
  }
  for (auto& held : std::exchange(held_, {})) Enqueue(std::move(held), /*hold=*/false);
  while (!requests_.empty()) FinishRequest(*requests_.begin()->second, lost_);
  if (swap_ != nullptr) TrySwap();
  RunWhenIdle();
  UpdateInfo();
  if (options_.on_ranks_lost) options_.on_ranks_lost(lost_);
}

}  // namespace tandem::rollout
