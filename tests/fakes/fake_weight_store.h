// A WeightStore of two arenas in plain memory, whose commit is a swap.
#ifndef TANDEM_TESTS_FAKES_FAKE_WEIGHT_STORE_H_
#define TANDEM_TESTS_FAKES_FAKE_WEIGHT_STORE_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/weights/manifest.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::testing {

class FakeWeightStore : public rollout::WeightStore {
 public:
  explicit FakeWeightStore(common::v1::Manifest manifest) : manifest_(std::move(manifest)) {}

  const common::v1::Manifest& manifest() const override { return manifest_; }
  weights::DeviceOps& ops() const override { return *device; }
  int64_t live_version() const override { return live_version_; }
  int64_t live_incarnation() const override { return live_incarnation_; }
  std::string live_model_digest() const override {
    absl::MutexLock lock(&mu_);
    return live_model_digest_;
  }

  absl::Status PrepareStaging() override {
    if (on_prepare) on_prepare();
    if (!prepare_error.ok()) return prepare_error;
    staged_.clear();
    finished.clear();
    missing_.clear();
    for (const auto& tensor : manifest_.tensors()) {
      missing_.push_back(*weights::TensorBytes(tensor));
      staged_.emplace_back(missing_.back(), '\x5a');
    }
    return absl::OkStatus();
  }
  absl::Span<std::byte> Staged(int index) override {
    if (on_staged) on_staged(index);
    return {reinterpret_cast<std::byte*>(staged_[index].data()), staged_[index].size()};
  }
  absl::Status Arrived(int index, int64_t offset, int64_t size) override {
    if (size <= 0 || offset < 0 || size > missing_[index]) {
      return absl::InternalError("bytes that are no part of the tensor, or were told of before");
    }
    if (on_arrived) on_arrived(index, offset, size);
    missing_[index] -= size;
    if (missing_[index] > 0) return arrive_error;
    finished.push_back(index);
    if (on_finished) on_finished(index);
    return arrive_error;
  }
  void DropStaged() override {
    staged_.clear();
    ++num_dropped;
  }
  absl::StatusOr<rollout::CommitResult> Commit(int64_t version, int64_t incarnation,
                                               const std::string& digest) override {
    if (on_commit) on_commit();
    if (!commit_error.ok()) return std::exchange(commit_error, absl::OkStatus());
    absl::MutexLock lock(&mu_);
    live_.swap(staged_);
    live_version_ = version;
    live_incarnation_ = incarnation;
    live_model_digest_ = digest;
    ++num_commits;
    return rollout::CommitResult{.pause_seconds = 0.25};
  }
  absl::Span<const std::byte> Live(int index) const override {
    if (on_live) on_live(index);
    if (live_.empty()) return {};
    return {reinterpret_cast<const std::byte*>(live_[index].data()), live_[index].size()};
  }

  // What is live, read by the test between updates.
  std::string LiveBytes(int index) const {
    absl::MutexLock lock(&mu_);
    return live_.empty() ? "" : live_[index];
  }

  void SetLiveVersion(int64_t version) { live_version_ = version; }

  void SetLiveDigest(std::string digest) {
    absl::MutexLock lock(&mu_);
    live_model_digest_ = std::move(digest);
  }

  weights::DeviceOps* device = &weights::CpuOps();  // whose memory the host can read
  std::function<void()> on_prepare;                 // before room is made
  std::function<void(int)> on_staged;  // before the receiver looks for a tensor's memory
  std::function<void(int, int64_t, int64_t)> on_arrived;  // as Arrived()
  std::function<void(int)> on_finished;                   // after a tensor's last byte
  std::function<void()> on_commit;                        // before the swap
  std::function<void(int)> on_live;  // before the receiver looks at a live tensor
  absl::Status prepare_error;
  absl::Status arrive_error;
  absl::Status commit_error;  // once
  std::vector<int> finished;  // since PrepareStaging(), in order
  std::atomic<int> num_commits{0};
  std::atomic<int> num_dropped{0};

 private:
  const common::v1::Manifest manifest_;
  std::vector<int64_t> missing_;  // staged bytes of each tensor that have not arrived
  std::vector<std::string> staged_;
  std::atomic<int64_t> live_version_{-1};
  std::atomic<int64_t> live_incarnation_{0};
  mutable absl::Mutex mu_;
  std::vector<std::string> live_;
  std::string live_model_digest_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_WEIGHT_STORE_H_
