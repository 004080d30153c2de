// A store whose arenas lie where `ops` work: the CPU or a GPU.
#ifndef TANDEM_TESTS_FAKES_DEVICE_WEIGHT_STORE_H_
#define TANDEM_TESTS_FAKES_DEVICE_WEIGHT_STORE_H_

#include <ATen/ATen.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/status/status_macros.h"
#include "common/weights/manifest.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::testing {

class DeviceWeightStore : public rollout::WeightStore {
 public:
  DeviceWeightStore(common::v1::Manifest manifest, weights::DeviceOps& ops)
      : manifest_(std::move(manifest)), ops_(ops) {}

  const common::v1::Manifest& manifest() const override { return manifest_; }
  weights::DeviceOps& ops() const override { return ops_; }
  int64_t live_version() const override { return live_version_; }
  int64_t live_incarnation() const override { return live_incarnation_; }
  std::string live_model_digest() const override {
    absl::MutexLock lock(&mu_);
    return live_model_digest_;
  }
  absl::Status PrepareStaging() override {
    staged_.clear();
    for (const auto& tensor : manifest_.tensors()) {
      ASSIGN_OR_RETURN(const int64_t bytes, weights::TensorBytes(tensor));
      ASSIGN_OR_RETURN(staged_.emplace_back(), ops_.Buffer(bytes));
    }
    return absl::OkStatus();
  }
  absl::Span<std::byte> Staged(int index) override { return BytesOf(staged_[index]); }
  absl::Status Arrived(int, int64_t, int64_t) override { return absl::OkStatus(); }
  void DropStaged() override { staged_.clear(); }
  absl::StatusOr<rollout::CommitResult> Commit(int64_t version, int64_t incarnation,
                                               const std::string& digest) override {
    absl::MutexLock lock(&mu_);
    live_ = std::move(staged_);
    live_version_ = version;
    live_incarnation_ = incarnation;
    live_model_digest_ = digest;
    return rollout::CommitResult();
  }
  absl::Span<const std::byte> Live(int index) const override {
    return live_.empty() ? absl::Span<const std::byte>() : BytesOf(live_[index]);
  }

 private:
  static absl::Span<std::byte> BytesOf(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
  }

  const common::v1::Manifest manifest_;
  weights::DeviceOps& ops_;
  std::vector<at::Tensor> staged_, live_;  // uint8
  std::atomic<int64_t> live_version_{-1};
  std::atomic<int64_t> live_incarnation_{0};
  mutable absl::Mutex mu_;
  std::string live_model_digest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_DEVICE_WEIGHT_STORE_H_
