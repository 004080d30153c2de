#include "common/weights/broadcast_transport.h"

#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"
#include "common/weights/tensor_sink.h"
#include "common/weights/update_memory.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Buckets from the model's bytes; notes how many are under way.
class ModelSource : public BucketSource {
 public:
  ModelSource(const TestModel& model, const TransferPlan& plan) : model_(model), plan_(plan) {}

  absl::Status Start(int bucket, at::Tensor buffer, PhaseTimes&) override {
    if (bucket == fail_at) return absl::InternalError("the source fails");
    started_.insert(bucket);
    EXPECT_LE(started_.size(), 2u);
    for (const auto& piece : plan_.buckets[bucket].pieces()) {
      std::memcpy(static_cast<char*>(buffer.data_ptr()) + piece.bucket_offset(),
                  model_.Bytes(piece.tensor()).data() + piece.tensor_offset(), piece.size_bytes());
    }
    return absl::OkStatus();
  }
  absl::Status Finish(int bucket) override {
    EXPECT_EQ(started_.erase(bucket), 1u);
    return absl::OkStatus();
  }

  int fail_at = -1;

 private:
  const TestModel& model_;
  const TransferPlan& plan_;
  std::set<int> started_;
};

// A wire that flips one bit of one broadcast on this rank.
class FlippingGroup : public comm::ProcessGroup {
 public:
  FlippingGroup(comm::ProcessGroup& group, int at) : group_(group), at_(at) {}
  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    ASSIGN_OR_RETURN(auto work, group_.Broadcast(tensor, root, tag));
    RETURN_IF_ERROR(work->Wait());
    if (count_++ == at_) static_cast<char*>(tensor.data_ptr())[0] ^= 1;
    return work;
  }
  const std::string& name() const override { return group_.name(); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  WorkOr AllGather(at::Tensor, at::Tensor, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  WorkOr ReduceScatter(at::Tensor, at::Tensor, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  WorkOr AllToAll(at::Tensor, at::Tensor, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  WorkOr AllReduce(at::Tensor, comm::ReduceOp, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  WorkOr Send(at::Tensor, int, absl::string_view) override { return absl::UnimplementedError(""); }
  WorkOr Receive(at::Tensor, int, absl::string_view) override {
    return absl::UnimplementedError("");
  }
  absl::Status Barrier(absl::string_view) override { return absl::UnimplementedError(""); }
  void SetTimeout(absl::Duration) override {}
  absl::Status status() const override { return group_.status(); }
  void Abort(absl::string_view reason) override { group_.Abort(reason); }

 private:
  comm::ProcessGroup& group_;
  const int at_;
  int count_ = 0;
};

struct Memory : public UpdateMemory {
  explicit Memory(const TransferPlan& plan) {
    for (const int64_t bytes : plan.tensor_bytes) tensors.emplace_back(bytes, '\x5a');
  }
  absl::Span<std::byte> Staged(int i) override {
    return {reinterpret_cast<std::byte*>(tensors[i].data()), tensors[i].size()};
  }
  absl::Span<const std::byte> Live(int) const override { return {}; }
  std::vector<std::string> tensors;
};

class BucketSizes : public ::testing::TestWithParam<int64_t> {};

TEST_P(BucketSizes, EveryReceiverHasTheSendersBytesAndDigestsAndPhasesAddUp) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    const TestModel model = TestModel::Small(dtype);
    ASSERT_OK_AND_ASSIGN(const TransferPlan plan, MakeTransferPlan(model.manifest(), GetParam()));
    std::vector<std::vector<TensorDigest>> digests(3);
    const auto results =
        comm::RunRanks(3, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
          BroadcastTransport transport;
          PhaseTimes times;
          const auto start = PhaseTimes::Clock::now();
          if (group.rank() == 0) {
            ModelSource source(model, plan);
            ASSIGN_OR_RETURN(digests[0], transport.Send(plan, group, source, times));
          } else {
            Memory memory(plan);
            ASSIGN_OR_RETURN(auto sink, TensorSink::Create(plan, memory));
            RETURN_IF_ERROR(transport.Receive(plan, group, *sink, times));
            digests[group.rank()] = sink->digests();
            for (size_t i = 0; i < memory.tensors.size(); ++i) {
              if (memory.tensors[i] != model.Bytes(i))
                return absl::InternalError(absl::StrCat("tensor ", i));
            }
          }
          const double whole =
              std::chrono::duration<double>(PhaseTimes::Clock::now() - start).count();
          if (times.exposed_sum() > whole)
            return absl::InternalError("the parts are more than the whole");
          return absl::OkStatus();
        });
    for (const absl::Status& result : results) EXPECT_OK(result);
    ASSERT_EQ(digests[0].size(), 6u);
    EXPECT_EQ(ModelDigest(digests[0]), ModelDigest(digests[1]));
    EXPECT_EQ(ModelDigest(digests[0]), ModelDigest(digests[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(Bytes, BucketSizes, ::testing::Values(8, 104, 256, 1 << 20));

TEST(BroadcastTransport, AFlippedBitChangesTheDigestOfItsTensorOnly) {
  const TestModel model = TestModel::Small();
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, MakeTransferPlan(model.manifest(), 200));
  std::vector<std::vector<TensorDigest>> digests(2);
  const auto results =
      comm::RunRanks(2, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
        BroadcastTransport transport;
        PhaseTimes times;
        if (group.rank() == 0) {
          ModelSource source(model, plan);
          ASSIGN_OR_RETURN(digests[0], transport.Send(plan, group, source, times));
          return absl::OkStatus();
        }
        Memory memory(plan);
        FlippingGroup flipping(group, 1);  // the second bucket begins within tensor 2
        ASSIGN_OR_RETURN(auto sink, TensorSink::Create(plan, memory));
        RETURN_IF_ERROR(transport.Receive(plan, flipping, *sink, times));
        digests[1] = sink->digests();
        return absl::OkStatus();
      });
  for (const absl::Status& result : results) ASSERT_OK(result);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(digests[0][i].digest() == digests[1][i].digest(), i != 2) << i;
}

TEST(BroadcastTransport, AReceiverThatLeavesEndsTheSendWithTheBucketsName) {
  const TestModel model = TestModel::Small();
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, MakeTransferPlan(model.manifest(), 8));
  absl::Notification sender_is_connected;
  const auto results =
      comm::RunRanks(2, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
        if (group.rank() == 1) {
          sender_is_connected.WaitForNotificationWithTimeout(absl::Seconds(30));
          group.Abort("leaves");
          return absl::OkStatus();
        }
        sender_is_connected.Notify();
        BroadcastTransport transport;
        ModelSource source(model, plan);
        PhaseTimes times;
        return transport.Send(plan, group, source, times).status();
      });
  EXPECT_THAT(results[0],
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("phase wire"), HasSubstr("bucket "), HasSubstr(" of 141"))));
}

}  // namespace
}  // namespace tandem::weights
