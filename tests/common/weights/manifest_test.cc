#include "common/weights/manifest.h"

#include "common/rpc/status_conversion.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Manifest, TheDigestDependsOnNamesShapesTypesAndOrder) {
  const Manifest manifest = TestModel::Small().manifest();
  EXPECT_EQ(manifest.digest().size(), 32u);
  EXPECT_EQ(ManifestDigest(manifest), ManifestDigest(TestModel::Small().manifest()));
  Manifest other = manifest;
  other.mutable_tensors(1)->set_name("x");
  EXPECT_NE(ManifestDigest(other), manifest.digest());
  other = manifest;
  other.mutable_tensors(1)->set_shape(0, 4);
  other.mutable_tensors(1)->set_shape(1, 3);
  EXPECT_NE(ManifestDigest(other), manifest.digest());
  other = manifest;
  other.mutable_tensors(1)->set_dtype("bfloat16");
  EXPECT_NE(ManifestDigest(other), manifest.digest());
  other = manifest;
  other.mutable_tensors()->SwapElements(0, 1);
  EXPECT_NE(ManifestDigest(other), manifest.digest());
}

TEST(Manifest, CountsBytes) {
  EXPECT_THAT(ManifestBytes(TestModel::Small("bfloat16").manifest()),
              IsOkAndHolds(int64_t{2 * (35 + 12 + 11 + 30 + 1 + 192)}));
}

TEST(Manifest, SizesThatNoTensorHasAreRefused) {
  TensorEntry tensor;
  tensor.set_name("w");
  tensor.set_dtype("float32");
  tensor.add_shape(int64_t{1} << 62);
  tensor.add_shape(int64_t{1} << 62);
  EXPECT_THAT(TensorBytes(tensor),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor w")));
  tensor.set_shape(0, -1);
  EXPECT_THAT(TensorBytes(tensor),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor w")));
  tensor.set_shape(0, 1);
  tensor.set_shape(1, 1);
  tensor.set_dtype("int7");
  EXPECT_THAT(TensorBytes(tensor), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("int7")));
}

TEST(Manifest, WhatNoManifestCanBeIsRefused) {
  EXPECT_THAT(CheckManifest({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 0")));
  Manifest manifest = TestModel::Small().manifest();
  EXPECT_OK(CheckManifest(manifest));
  manifest.set_digest("00");
  EXPECT_THAT(CheckManifest(manifest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("digest 00")));
  manifest.mutable_tensors(1)->set_name(manifest.tensors(0).name());
  EXPECT_THAT(CheckManifest(manifest),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("listed twice")));
}

TEST(Manifest, DifferencesAreListedByName) {
  const Manifest expected = TestModel::Small().manifest();
  Manifest offered = expected;
  offered.mutable_tensors(0)->set_name("new");
  offered.mutable_tensors(2)->set_dtype("bfloat16");
  const absl::Status status = CheckSameTensors(expected, offered);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("1 missing: u0.t0"), HasSubstr("1 unexpected: new"),
                                     HasSubstr("u1.t1 is bfloat16[11], expected float32[11]"))));
  const auto detail = rpc::GetDetail<common::v1::UnloadedParams>(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_THAT(detail->missing(), ElementsAre("u0.t0"));
  EXPECT_THAT(detail->unexpected(), ElementsAre("new"));
}

TEST(Manifest, AnotherOrderIsRefused) {
  const Manifest expected = TestModel::Small().manifest();
  Manifest offered = expected;
  offered.mutable_tensors()->SwapElements(0, 1);
  EXPECT_THAT(CheckSameTensors(expected, offered),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("order")));
}

}  // namespace
}  // namespace tandem::weights
