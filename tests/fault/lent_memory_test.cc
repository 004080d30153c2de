// A sender that changes the bytes it has lent while a receiver reads them: what was read is refused
// by its digest, nothing of it is served, and the next update is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "common/weights/cpu_ops.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int64_t kRows = 512, kColumns = 512;
constexpr int64_t kShard = kRows * kColumns / kRanks;  // elements: one message of each rank

TestModel Version(int64_t version) {
  TestModel model{{{{kRows, kColumns}}}};
  model.offset = static_cast<double>(version);
  return model;
}

// Knows how many of the senders have digested what they lend.
class CountingOps : public weights::CpuDeviceOps {
 public:
  absl::Status Digest(absl::Span<const weights::DigestRun> runs,
                      absl::Span<weights::DigestSum> sums) override {
    const absl::Status status = CpuDeviceOps::Digest(runs, sums);
    absl::MutexLock lock(&mu_);
    num_digests_ += static_cast<int>(runs.size());
    return status;
  }
  void StartOver() {
    absl::MutexLock lock(&mu_);
    num_digests_ = 0;
  }
  // Of every rank's message; false where it takes too long.
  bool WaitForAll() {
    absl::MutexLock lock(&mu_);
    const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return num_digests_ >= kRanks; };
    return mu_.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(20));
  }

 private:
  absl::Mutex mu_;
  int num_digests_ ABSL_GUARDED_BY(mu_) = 0;
};

// The master of the rank that lends it, changed behind the part that has been read.
class ChangingSender : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeTrainer::Options options;
    options.ranks = kRanks;
    options.bucket_bytes = int64_t{1} << 20;
    options.backend = "messages";
    options.transport = "reshard";
    options.device = &ops_;
    options.lends_masters = true;
    auto made = FakeTrainer::Create(Version(0), options);
    ASSERT_OK(made.status());
    trainer_ = *std::move(made);
  }

  // With the next bytes that arrive at replica one before the last of their message.
  void ChangeOnce() {
    ops_.StartOver();
    one_.store.on_arrived = [this](int, int64_t offset, int64_t size) {
      const int64_t shard_bytes = kShard * static_cast<int64_t>(sizeof(float));
      const int64_t end = offset + size;
      if (changed_ || end % shard_bytes == 0) return;
      ASSERT_TRUE(ops_.WaitForAll());
      const auto rank = static_cast<int>(end / shard_bytes);
      at::Tensor last = trainer_->master(rank, 0).narrow(0, kShard - 1, 1);
      last.add_(1);
      changed_ = true;
    };
  }

  absl::Status Publish(int64_t version) {
    trainer_->SetWeights(Version(version));
    return trainer_->Publish(version, {Endpoint("one", one_), Endpoint("two", two_)}).status();
  }

  CountingOps ops_;
  FakeRollout one_{Version(0)}, two_{Version(0)};
  std::unique_ptr<FakeTrainer> trainer_;
  std::atomic<bool> changed_{false};
};

TEST_F(ChangingSender, IsRefusedByNameAndTheNextUpdateIsWhole) {
  ASSERT_OK(Publish(1));
  ChangeOnce();

  const absl::Status refused = Publish(2);

  EXPECT_TRUE(changed_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << refused;
  for (const char* name : {"tensor u0.t0", "rank 0", "replica one"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(name));
  }
  for (const FakeRollout* rollout : {&one_, &two_}) ExpectLive(*rollout, Version(1), 1);
  ASSERT_OK(Publish(3));
  for (const FakeRollout* rollout : {&one_, &two_}) ExpectLive(*rollout, Version(3), 3);
}

}  // namespace
}  // namespace tandem::testing
