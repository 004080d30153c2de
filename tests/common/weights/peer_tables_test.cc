// Tables that a peer sends, as they are made and as they are checked: what is passed on to replicas
// that are split otherwise, and what a rank receives of a broadcast.
#include <functional>

#include "common/weights/broadcast_part.h"
#include "common/weights/relay_table.h"
#include "tests/common/weights/plan_fixtures.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using namespace testing;  // NOLINT: the fixtures
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

Manifest ManifestOf(const ModelLayout& layout, int rank) {
  Manifest manifest;
  for (const TensorBox& box : layout.parts[rank].boxes) {
    TensorEntry& tensor = *manifest.add_tensors();
    tensor.set_name(absl::StrCat("t", box.tensor));
    tensor.add_shape(layout.tensors[box.tensor].rows);
    tensor.add_shape(layout.tensors[box.tensor].columns);
    tensor.set_dtype("float32");
    tensor.mutable_box()->set_first_row(box.first_row);
    tensor.mutable_box()->set_rows(box.rows);
    tensor.mutable_box()->set_first_column(box.first_column);
    tensor.mutable_box()->set_columns(box.columns);
  }
  manifest.set_digest(ManifestDigest(manifest));
  return manifest;
}

google::protobuf::RepeatedPtrField<Bucket> Repeated(const std::vector<Bucket>& buckets) {
  return {buckets.begin(), buckets.end()};
}

// The bytes of a bucket of the whole model.
std::vector<Value> BytesOf(const Bucket& bucket, const Memory& held) {
  std::vector<Value> bytes(bucket.size_bytes() / 4);
  for (const auto& piece : bucket.pieces()) {
    std::memcpy(bytes.data() + piece.bucket_offset() / 4,
                held.at(piece.tensor()).data() + piece.tensor_offset() / 4, piece.size_bytes());
  }
  return bytes;
}

std::vector<Value> Cut(const BucketCut& cut, const std::vector<Value>& bucket) {
  std::vector<Value> message;
  for (const BucketRuns& runs : cut.runs) {
    for (int64_t i = 0; i < runs.repeat; ++i) {
      const Value* run = bucket.data() + (runs.offset + i * runs.stride) / 4;
      message.insert(message.end(), run, run + runs.size_bytes / 4);
    }
  }
  EXPECT_EQ(static_cast<int64_t>(message.size()) * 4, cut.size_bytes);
  return message;
}

void Take(const Bucket& bucket, const std::vector<Value>& message, Memory& taken) {
  ASSERT_EQ(bucket.size_bytes(), static_cast<int64_t>(message.size()) * 4);
  for (const auto& piece : bucket.pieces()) {
    const int64_t runs = std::max<int64_t>(1, piece.repeat());
    for (int64_t i = 0; i < runs; ++i) {
      std::memcpy(
          taken.at(piece.tensor()).data() + (piece.tensor_offset() + i * piece.stride()) / 4,
          message.data() + (piece.bucket_offset() + i * piece.size_bytes() / runs) / 4,
          piece.size_bytes() / runs);
    }
  }
}

TEST(BroadcastPart, EveryRankReceivesItsBoxesAndNothingElse) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const model::ModelSpec spec = RandomSpec(rng);
    const int ranks = Draw(rng, 1, 4);
    const ModelLayout layout = *LayoutOf(spec, {}, ranks);
    const ModelLayout one = *LayoutOf(spec, {}, 1);
    const ModelLayout beside = *LayoutOf(spec, {}, Draw(rng, 1, 4));
    const std::vector<bool> to_all = HeldByAll({&layout, &beside});
    ASSERT_OK_AND_ASSIGN(const TransferPlan whole,
                         MakeTransferPlan(ManifestOf(one, 0), 8 * Draw(rng, 1, 90)));
    const std::vector<Memory> held = RolloutMemory(spec, 1);
    const std::vector<Memory> expected = RolloutMemory(spec, ranks);
    std::vector<Memory> taken = Empty(expected);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_OK_AND_ASSIGN(const RankShare share, ShareOfRank(whole, to_all, layout, rank));
      const Manifest manifest = ManifestOf(layout, rank);
      ASSERT_THAT(CheckBroadcastPart(manifest, Repeated(share.buckets)).status(), IsOk());
      auto next = share.buckets.begin();
      int64_t bytes = 0;
      for (size_t b = 0; b < whole.buckets.size(); ++b) {
        const std::vector<Value> bucket = BytesOf(whole.buckets[b], held[0]);
        for (const bool for_all : {true, false}) {
          const BucketCut& cut = for_all ? share.all[b] : share.part[b];
          if (cut.runs.empty()) continue;
          ASSERT_NE(next, share.buckets.end());
          EXPECT_EQ(next->source(), for_all ? 0 : kToPart);
          EXPECT_EQ(next->pieces(0).tensor(), cut.first_tensor);
          Take(*next++, Cut(cut, bucket), taken[rank]);
          bytes += cut.size_bytes;
        }
      }
      EXPECT_EQ(next, share.buckets.end());
      int64_t own = 0;
      for (const auto& [tensor, values] : expected[rank]) own += 4 * std::ssize(values);
      EXPECT_EQ(bytes, own);
    }
    ASSERT_EQ(taken, expected);
  }
}

TEST(BroadcastPart, OfRanksThatAllHoldEverythingIsThePlan) {
  Rng rng(5);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout one = *LayoutOf(spec, {}, 1);
  ASSERT_OK_AND_ASSIGN(const TransferPlan whole, MakeTransferPlan(ManifestOf(one, 0), 400));
  ASSERT_OK_AND_ASSIGN(const RankShare share, ShareOfRank(whole, HeldByAll({&one, &one}), one, 0));
  ASSERT_EQ(share.buckets.size(), whole.buckets.size());
  for (size_t b = 0; b < whole.buckets.size(); ++b) {
    EXPECT_EQ(share.buckets[b].SerializeAsString(), whole.buckets[b].SerializeAsString());
    EXPECT_TRUE(share.all[b].IsRange());
    EXPECT_TRUE(share.part[b].runs.empty());
  }
}

TEST(BroadcastPart, RefusesATableThatReachesBeyondBucketOrTensor) {
  Rng rng(1);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout layout = *LayoutOf(spec, {}, 2);
  ASSERT_OK_AND_ASSIGN(const TransferPlan whole,
                       MakeTransferPlan(ManifestOf(*LayoutOf(spec, {}, 1), 0), 4096));
  ASSERT_OK_AND_ASSIGN(const RankShare share, ShareOfRank(whole, HeldByAll({&layout}), layout, 1));
  const auto error = [&](const std::function<void(Bucket&)>& change) {
    std::vector<Bucket> changed = share.buckets;
    change(changed[0]);
    return CheckBroadcastPart(ManifestOf(layout, 1), Repeated(changed)).status();
  };
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bucket"));
  EXPECT_THAT(error([](Bucket&) {}), IsOk());
  EXPECT_THAT(error([](Bucket& b) { b.set_size_bytes(4); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.set_size_bytes(0); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.set_size_bytes(INT64_MAX); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.mutable_pieces(0)->set_bucket_offset(-4); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.mutable_pieces(0)->set_bucket_offset(INT64_MAX); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.mutable_pieces(0)->set_tensor(1 << 20); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.mutable_pieces(0)->set_tensor_offset(1 << 30); }), refused);
  EXPECT_THAT(error([](Bucket& b) { *b.add_pieces() = b.pieces(0); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.mutable_pieces()->DeleteSubrange(0, 1); }), refused);
  EXPECT_THAT(error([](Bucket& b) { b.set_source(3); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 0 (from the leader "
                                                                     "to all ranks) or -1")));
}

TEST(BroadcastPart, ThatKeepsFrozenTensorsHasNothingOfThem) {
  Rng rng(2);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout layout = *LayoutOf(spec, {}, 2);
  const auto first_frozen = [](Manifest manifest) {
    for (int i = 1; i < manifest.tensors_size(); ++i) {
      manifest.mutable_tensors(i)->set_trainable(true);
    }
    return manifest;
  };
  const Manifest manifest = first_frozen(ManifestOf(*LayoutOf(spec, {}, 1), 0));
  const Manifest part = first_frozen(ManifestOf(layout, 1));
  const auto table = [&](bool keeps_frozen) {
    return Repeated(
        ShareOfRank(*MakeTransferPlan(manifest, 400, keeps_frozen), HeldByAll({&layout}), layout, 1)
            ->buckets);
  };
  EXPECT_THAT(CheckBroadcastPart(part, table(false)).status(), IsOk());
  EXPECT_THAT(CheckBroadcastPart(part, table(true), /*keeps_frozen=*/true).status(), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t0"));
  EXPECT_THAT(CheckBroadcastPart(part, table(true)).status(), refused);
  EXPECT_THAT(CheckBroadcastPart(part, table(false), /*keeps_frozen=*/true).status(), refused);
}

// What is left of holdings without the first tensor.
Holdings WithoutFirst(Holdings holdings) {
  for (auto& rank : holdings.ranks) {
    std::erase_if(rank, [](const Holding& holding) { return holding.piece.tensor == 0; });
  }
  return holdings;
}

TEST(ReceiveTable, ThatKeepsFrozenTensorsHasNothingOfThem) {
  Rng rng(3);
  const ModelLayout layout = *LayoutOf(RandomSpec(rng), {}, 1);
  Manifest manifest = ManifestOf(layout, 0);
  for (int i = 1; i < manifest.tensors_size(); ++i)
    manifest.mutable_tensors(i)->set_trainable(true);
  const Holdings trainer = TrainerHoldings(layout, {.dp_shard = 2});
  const Holdings all = RolloutHoldings(layout);
  ASSERT_OK_AND_ASSIGN(const ReshardPlan whole, MakeReshardPlan(trainer, all, {4, 400}));
  ASSERT_OK_AND_ASSIGN(const ReshardPlan rest,
                       MakeReshardPlan(trainer, WithoutFirst(all), {4, 400}));
  EXPECT_EQ(whole.total_bytes() - rest.total_bytes(), layout.tensors[0].elements() * 4);

  const auto whole_table = Repeated(BucketsFor(whole, 0));
  const auto rest_table = Repeated(BucketsFor(rest, 0));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("t0"));
  EXPECT_THAT(CheckReceiveTable(manifest, whole_table).status(), IsOk());
  EXPECT_THAT(CheckReceiveTable(manifest, rest_table, /*keeps_frozen=*/true).status(), IsOk());
  EXPECT_THAT(CheckReceiveTable(manifest, rest_table).status(), refused);
  EXPECT_THAT(CheckReceiveTable(manifest, whole_table, /*keeps_frozen=*/true).status(), refused);
}

TEST(RelayTable, OfAFeedThatDoesNotBringATensorPassesOnTheOthers) {
  Rng rng(5);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout two = *LayoutOf(spec, {}, 2);
  const ModelLayout one = *LayoutOf(spec, {}, 1);
  ASSERT_OK_AND_ASSIGN(const ReshardPlan feed,
                       MakeReshardPlan(TrainerHoldings(one, {.dp_shard = 2}),
                                       WithoutFirst(RolloutHoldings(two)), {4, 400}));
  EXPECT_THAT(MakeRelayPlan(feed, two, one), StatusIs(absl::StatusCode::kInvalidArgument,
                                                      HasSubstr("does not deliver everything")));
  std::vector<bool> brings(one.tensors.size(), true);
  brings[0] = false;
  ASSERT_OK_AND_ASSIGN(const RelayPlan relay, MakeRelayPlan(feed, two, one, brings));
  EXPECT_EQ(relay.hop.total_bytes(), (one.elements() - one.tensors[0].elements()) * 4);
}

TEST(RelayTable, RefusesWhatIsNoPartOfWhatArrives) {
  Rng rng(5);
  const model::ModelSpec spec = RandomSpec(rng);
  const ModelLayout two = *LayoutOf(spec, {}, 2);
  const ModelLayout one = *LayoutOf(spec, {}, 1);
  ASSERT_OK_AND_ASSIGN(
      const ReshardPlan feed,
      MakeReshardPlan(TrainerHoldings(one, {.dp_shard = 2}), RolloutHoldings(two), {4, 400}));
  ASSERT_OK_AND_ASSIGN(const RelayPlan relay, MakeRelayPlan(feed, two, one));
  ASSERT_OK_AND_ASSIGN(TransferPlan plan, PlanOfManifest(ManifestOf(two, 0)));
  plan.buckets.resize(feed.messages.size());
  std::vector<int64_t> whole;
  for (const LogicalTensor& tensor : one.tensors) whole.push_back(tensor.elements() * 4);
  const RelayedBuckets relayed = RelayedFor(relay, 0, 2, {whole});
  int64_t bytes = 0;
  for (const RelayedBucket& bucket : relayed) bytes += SizeBytes(bucket);
  EXPECT_EQ(bytes, relay.hop.sent_bytes[0]);
  EXPECT_EQ(relayed[0].to(), 2);

  const auto error = [&](const std::function<void(RelayedBucket&)>& change) {
    RelayedBuckets changed = relayed;
    change(*changed.Mutable(1));
    return CheckRelayed(plan, changed);
  };
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("relayed 1"));
  EXPECT_THAT(error([](RelayedBucket&) {}), IsOk());
  EXPECT_THAT(error([](RelayedBucket& r) { r.set_after_bucket(-1); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.set_after_bucket(INT32_MAX); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_tensor(-1); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_tensor(INT32_MAX); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_bucket_offset(4); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_size_bytes(INT64_MAX); }),
              refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_tensor_offset(-4); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.mutable_pieces(0)->set_bucket_stride(8); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.clear_message_pieces(); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.clear_pieces(); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.set_message_pieces(0, 0); }), refused);
  EXPECT_THAT(error([](RelayedBucket& r) { r.add_message_pieces(INT32_MAX); }), refused);
}

}  // namespace
}  // namespace tandem::weights
