// The memory of an update's transfer, of each process by itself: a few buckets, whatever the size
// of the model, which here has some forty.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/fault/actor_model.h"
#include "tests/fault/update_fleet.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);
// Words before messages, and reports: no tensor of weights.
constexpr int64_t kSlackBytes = kActorBucketBytes / 2;

struct Bound {
  const char* transport;
  // Buckets of a rank that sends, that receives; and whether a sender keeps what it sent last.
  int sent;
  int received;
  bool keeps_base;
};
void PrintTo(const Bound& bound, std::ostream* out) { *out << bound.transport; }

class TransferMemory : public ::testing::TestWithParam<Bound> {};
INSTANTIATE_TEST_SUITE_P(Transports, TransferMemory,
                         ::testing::Values(Bound{"broadcast", 2, 2, false},
                                           Bound{"reshard", 2, 2, false},
                                           // A delta lies beside the bucket that it is of.
                                           Bound{"delta", 4, 3, true}));

int64_t Bytes(ActorProcess& process, const char* which) {
  process.Send("memory");
  const auto told = process.Await("memory", kSoon);
  return told.has_value() ? (*told)[which].get<int64_t>() : -1;
}

TEST_P(TransferMemory, OfEachRankIsAFewBuckets) {
  const Bound& bound = GetParam();
  UpdateFleet fleet(UPDATE_ACTOR, {.transport = bound.transport, .update_timeout = kSoon});
  ASSERT_OK(fleet.Start());
  ASSERT_OK(fleet.Prepare(1));
  const std::array<ActorProcess*, 4> all = {&fleet.rank(0), &fleet.rank(1), &fleet.rollout(0),
                                            &fleet.rollout(1)};
  std::array<int64_t, 4> before{};
  for (size_t i = 0; i < all.size(); ++i) before[i] = Bytes(*all[i], "bytes");

  int64_t model_bytes = 0;
  const weights::Manifest manifest = ActorModel(0).manifest();
  for (const auto& tensor : manifest.tensors()) model_bytes += *weights::TensorBytes(tensor);
  ASSERT_GT(model_bytes, 30 * kActorBucketBytes);

  for (int64_t version = 1; version <= 3; ++version) {
    if (version > 1) {
      ASSERT_OK(fleet.Prepare(version));
    }
    for (ActorProcess* process : all) Bytes(*process, "bytes");  // from here on
    fleet.Publish(version);
    ASSERT_OK(fleet.Result(fleet.driver(), "answered", kSoon));
    ASSERT_OK(fleet.Result(fleet.rank(1), "followed", kSoon));
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t peak = Bytes(*all[i], "peak_bytes") - before[i];
      const bool sends = i < 2;
      // A shard is padded at each unit's end.
      const int64_t base = sends && bound.keeps_base ? model_bytes / kActorRanks + 64 : 0;
      const int64_t buckets = sends ? bound.sent : bound.received;
      EXPECT_LE(peak, base + buckets * kActorBucketBytes + kSlackBytes)
          << "process " << i << ", version " << version;
      // So it is the transfer that was measured.
      EXPECT_GT(peak, 0);
    }
  }
}

}  // namespace
}  // namespace tandem::testing
