#include "services/trainer/publish/shard_gather_source.h"

#include <cstring>

#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::Each;
using ::testing::HasSubstr;

RankShards Shards(const TestModel& model, int rank, int ranks) {
  RankShards shards;
  shards.rank = rank;
  shards.ranks = ranks;
  for (size_t u = 0; u < model.units.size(); ++u) {
    shards.units.push_back({.master = model.Shard(u, rank, ranks),
                            .numel = model.UnitNumel(u),
                            .padded_numel = model.Padded(u, ranks)});
  }
  return shards;
}

std::string Stream(const TestModel& model) {
  std::string stream;
  for (int i = 0; i < model.manifest().tensors_size(); ++i) stream += model.Bytes(i);
  return stream;
}

// The leader gathers buckets [0, count) with two under way.
absl::Status GatherBuckets(ShardGatherSource& source, const weights::TransferPlan& plan, int count,
                           std::string& out) {
  weights::PhaseTimes times;
  std::vector<at::Tensor> buffers;
  for (int b = 0; b < count; ++b) {
    buffers.push_back(at::zeros({plan.buckets[b].size_bytes()}, at::kByte));
    RETURN_IF_ERROR(source.Start(b, buffers[b], times));
    if (b > 0) {
      RETURN_IF_ERROR(source.Finish(b - 1));
    }
  }
  if (count > 0) {
    RETURN_IF_ERROR(source.Finish(count - 1));
  }
  for (const at::Tensor& buffer : buffers) {
    out.append(static_cast<const char*>(buffer.data_ptr()), buffer.nbytes());
  }
  return absl::OkStatus();
}

TEST(ShardGatherSource, BucketsAreTheCanonicalStreamWhateverTheRanksBucketsAndType) {
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t bucket_bytes : {8, 136, 1 << 20}) {
      for (const std::string dtype : {"float32", "bfloat16"}) {
        const TestModel model = TestModel::Small(dtype);
        ASSERT_OK_AND_ASSIGN(const auto plan,
                             weights::MakeTransferPlan(model.manifest(), bucket_bytes));
        const auto results =
            comm::RunRanks(ranks, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
              ASSIGN_OR_RETURN(auto source, ShardGatherSource::Create(
                                                plan, Shards(model, group.rank(), ranks), &group));
              if (group.rank() > 0) return source->Follow();
              std::string bytes;
              RETURN_IF_ERROR(GatherBuckets(*source, plan, plan.buckets.size(), bytes));
              RETURN_IF_ERROR(source->End());
              return bytes == Stream(model) ? absl::OkStatus() : absl::InternalError("other bytes");
            });
        EXPECT_THAT(results, Each(IsOk())) << ranks << " ranks, " << bucket_bytes << ", " << dtype;
      }
    }
  }
}

TEST(ShardGatherSource, FrozenTensorsAreDigestedWhereTheyAreAndNotGathered) {
  TestModel model = TestModel::Small();
  model.frozen = {0, 2};
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t bucket_bytes : {8, 136, 1 << 20}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", bucket_bytes));
      ASSERT_OK_AND_ASSIGN(const auto whole,
                           weights::MakeTransferPlan(model.manifest(), bucket_bytes));
      const auto gather = [&](ShardGatherSource& source, bool keeps_frozen) -> absl::Status {
        RETURN_IF_ERROR(source.Choose(keeps_frozen));
        const weights::TransferPlan& plan = source.PlanOf(keeps_frozen);
        std::string bytes, expected;
        RETURN_IF_ERROR(GatherBuckets(source, plan, plan.buckets.size(), bytes));
        std::vector<weights::TensorDigest> digests = model.Digests();
        for (int i = 0; i < plan.manifest.tensors_size(); ++i) {
          if (plan.Brings(i))
            expected += model.Bytes(i);
          else
            digests[i].clear_digest();  // the receiver of buckets does not know it
        }
        RETURN_IF_ERROR(source.CheckGathered(digests));
        const bool same = bytes == expected &&
                          weights::ModelDigest(digests) == weights::ModelDigest(model.Digests());
        return same ? absl::OkStatus() : absl::InternalError("other bytes or digests");
      };
      const auto results =
          comm::RunRanks(ranks, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
            ASSIGN_OR_RETURN(auto source, ShardGatherSource::Create(
                                              whole, Shards(model, group.rank(), ranks), &group));
            if (group.rank() > 0) return source->Follow();
            // One kind after another, within one update as it happens after a failure.
            for (const bool keeps_frozen : {false, true, true, false}) {
              RETURN_IF_ERROR(gather(*source, keeps_frozen));
            }
            return source->End();
          });
      EXPECT_THAT(results, Each(IsOk()));
    }
  }
}

TEST(ShardGatherSource, AfterAnEndInTheMiddleTheGroupWorksAndTheNextUpdateIsWhole) {
  const TestModel model = TestModel::Small();
  ASSERT_OK_AND_ASSIGN(const auto plan, weights::MakeTransferPlan(model.manifest(), 64));
  const auto results =
      comm::RunRanks(2, comm::kGloo, [&](comm::ProcessGroup& group) -> absl::Status {
        ASSIGN_OR_RETURN(auto source,
                         ShardGatherSource::Create(plan, Shards(model, group.rank(), 2), &group));
        std::string part, whole;
        if (group.rank() == 0) {
          weights::PhaseTimes times;
          RETURN_IF_ERROR(GatherBuckets(*source, plan, 5, part));
          // Two under way that nobody will finish one by one.
          RETURN_IF_ERROR(source->Start(0, at::zeros({64}, at::kByte), times));
          RETURN_IF_ERROR(source->Start(1, at::zeros({64}, at::kByte), times));
          RETURN_IF_ERROR(source->Drain());
          RETURN_IF_ERROR(source->End());
        } else {
          RETURN_IF_ERROR(source->Follow());
        }
        RETURN_IF_ERROR(group.Barrier("between"));
        if (group.rank() > 0) return source->Follow();
        RETURN_IF_ERROR(GatherBuckets(*source, plan, plan.buckets.size(), whole));
        RETURN_IF_ERROR(source->End());
        return whole == Stream(model) ? absl::OkStatus() : absl::InternalError("other bytes");
      });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ShardGatherSource, ShardsThatAreNotThePlansAreRefused) {
  const TestModel model = TestModel::Small();
  ASSERT_OK_AND_ASSIGN(const auto plan, weights::MakeTransferPlan(model.manifest(), 64));
  RankShards shards = Shards(model, 0, 1);
  shards.units.pop_back();
  EXPECT_THAT(ShardGatherSource::Create(plan, shards, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the manifest 281")));
  EXPECT_THAT(ShardGatherSource::Create(plan, Shards(model, 0, 2), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("need the group")));
}

}  // namespace
}  // namespace tandem::trainer
