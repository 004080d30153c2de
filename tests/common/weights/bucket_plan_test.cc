#include "common/weights/bucket_plan.h"

#include <functional>

#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::HasSubstr;

google::protobuf::RepeatedPtrField<Bucket> Table(const TransferPlan& plan) {
  return {plan.buckets.begin(), plan.buckets.end()};
}

TEST(TransferPlan, BucketsOfAnySizeCoverTheStreamAndPassTheReceiversCheck) {
  const Manifest manifest = TestModel::Small("bfloat16").manifest();
  for (const int64_t bucket_bytes : {1, 8, 24, 100, 256, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const TransferPlan plan, MakeTransferPlan(manifest, bucket_bytes));
    int64_t total = 0;
    for (const Bucket& bucket : plan.buckets) {
      EXPECT_LE(bucket.size_bytes(), std::max<int64_t>(8, bucket_bytes));
      total += bucket.size_bytes();
    }
    EXPECT_EQ(total, plan.total_bytes);
    ASSERT_OK_AND_ASSIGN(const TransferPlan checked, CheckTransferPlan(manifest, Table(plan)));
    EXPECT_EQ(checked.buckets.size(), plan.buckets.size());
    EXPECT_EQ(checked.largest_bucket_bytes, plan.largest_bucket_bytes);
  }
}

TEST(TransferPlan, ATensorSpansBucketsAndABucketHoldsSeveralTensors) {
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan,
                       MakeTransferPlan(TestModel::Small().manifest(), 200));
  EXPECT_EQ(plan.buckets[0].pieces_size(), 3);  // 140 bytes, 48 bytes, 12 of 44
  EXPECT_EQ(plan.buckets[1].pieces(0).tensor(), 2);
  EXPECT_EQ(plan.buckets[1].pieces(0).tensor_offset(), 12);
  EXPECT_THAT(plan.BucketName(1), HasSubstr("u1.t1"));
}

TEST(TransferPlan, ThatKeepsFrozenTensorsHasBucketsOfTheOthersOnly) {
  TestModel model = TestModel::Small();
  model.frozen = {1};  // 48, 44 and 120 bytes
  const Manifest manifest = model.manifest();
  ASSERT_OK_AND_ASSIGN(const TransferPlan whole, MakeTransferPlan(manifest, 200));
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan,
                       MakeTransferPlan(manifest, 200, /*keeps_frozen=*/true));
  EXPECT_EQ(plan.total_bytes, whole.total_bytes);
  EXPECT_EQ(plan.BroughtBytes(), whole.total_bytes - 212);
  EXPECT_EQ(whole.BroughtBytes(), whole.total_bytes);
  int64_t total = 0;
  for (const Bucket& bucket : plan.buckets) {
    total += bucket.size_bytes();
    for (const auto& piece : bucket.pieces()) {
      EXPECT_TRUE(manifest.tensors(piece.tensor()).trainable());
    }
  }
  EXPECT_EQ(total, plan.BroughtBytes());
  EXPECT_OK(CheckTransferPlan(manifest, Table(plan), /*keeps_frozen=*/true).status());

  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a gap"));
  EXPECT_THAT(CheckTransferPlan(manifest, Table(plan)), refused);
  EXPECT_THAT(CheckTransferPlan(manifest, Table(whole), /*keeps_frozen=*/true), refused);
}

TEST(TransferPlan, SizesOutOfRangeAreRefused) {
  const Manifest manifest = TestModel::Small().manifest();
  EXPECT_THAT(MakeTransferPlan(manifest, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0")));
  EXPECT_THAT(MakeTransferPlan(manifest, kMaxBucketBytes + 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bucket size")));
}

TEST(TransferPlan, BucketsAreAnEighthOfTheModelWithinBounds) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  EXPECT_EQ(ChooseBucketBytes(64 * kMebibyte, 80 * kMebibyte), 10 * kMebibyte);
  EXPECT_EQ(ChooseBucketBytes(64 * kMebibyte, 1000 * kMebibyte), 64 * kMebibyte);
  EXPECT_EQ(ChooseBucketBytes(64 * kMebibyte, 10 * kMebibyte), 4 * kMebibyte);
  EXPECT_EQ(ChooseBucketBytes(kMebibyte, 10 * kMebibyte), kMebibyte);
}

TEST(TransferPlan, MessagesAreSmallAndFewAreUnderWay) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  EXPECT_EQ(ChooseMessageBytes(64 * kMebibyte, 80 * kMebibyte), kMebibyte);
  EXPECT_EQ(ChooseMessageBytes(64 * kMebibyte, 4096 * kMebibyte), 4 * kMebibyte);
  EXPECT_EQ(ChooseMessageBytes(64 * kMebibyte, 1024 * 1024 * kMebibyte), 64 * kMebibyte);
  EXPECT_EQ(ChooseMessageBytes(1000, 80 * kMebibyte), 1000);
  EXPECT_EQ(MessagesUnderWay(0), 8);
  EXPECT_EQ(MessagesUnderWay(kMebibyte), 8);
  EXPECT_EQ(MessagesUnderWay(4 * kMebibyte), 4);
  EXPECT_EQ(MessagesUnderWay(64 * kMebibyte), 2);
}

struct Damage {
  std::string name;
  std::function<void(google::protobuf::RepeatedPtrField<Bucket>&)> apply;
  std::string message;
};

class DamagedTable : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTable, IsRefusedWithBucketAndTensor) {
  const Manifest manifest = TestModel::Small().manifest();
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, MakeTransferPlan(manifest, 200));
  auto table = Table(plan);
  GetParam().apply(table);
  EXPECT_THAT(CheckTransferPlan(manifest, table),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(GetParam().message)));
}

using Buckets = google::protobuf::RepeatedPtrField<Bucket>;
INSTANTIATE_TEST_SUITE_P(
    Damages, DamagedTable,
    ::testing::Values(
        Damage{"LastBucketMissing", [](Buckets& t) { t.RemoveLast(); },
               "u2.t1 is covered up to byte"},
        Damage{"BucketTwice", [](Buckets& t) { *t.Add() = t[0]; },
               "more bytes than the tensors have"},
        Damage{"BucketsSwapped", [](Buckets& t) { t.SwapElements(0, 1); },
               "bucket 0: a gap, an overlap"},
        Damage{"PieceTooLong", [](Buckets& t) { t[0].mutable_pieces(0)->set_size_bytes(1000); },
               "bucket 0: the size"},
        Damage{"PieceNegative", [](Buckets& t) { t[0].mutable_pieces(0)->set_size_bytes(-8); },
               "bucket 0: the size"},
        Damage{"PieceOverflows",
               [](Buckets& t) {
                 t[0].mutable_pieces(0)->set_size_bytes(std::numeric_limits<int64_t>::max());
               },
               "bucket 0: the size"},
        Damage{"GapInBucket", [](Buckets& t) { t[0].mutable_pieces(1)->set_bucket_offset(144); },
               "bucket 0: a gap"},
        Damage{"NoSuchTensor", [](Buckets& t) { t[0].mutable_pieces(1)->set_tensor(99); },
               "found tensor 99"},
        Damage{"TensorNegative", [](Buckets& t) { t[0].mutable_pieces(0)->set_tensor(-1); },
               "found tensor -1"},
        Damage{"SizeOfBucketLies", [](Buckets& t) { t[1].set_size_bytes(1 << 30); },
               "bucket 1: size_bytes"},
        Damage{"EmptyBucket", [](Buckets& t) { t.Add(); }, "bucket 6: size_bytes"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::weights
