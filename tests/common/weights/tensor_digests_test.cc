#include "common/weights/tensor_digests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/hash/hasher.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Digest, ThePartsOfATensorThatRanksHoldAddUpToIt) {
  const testing::TestModel model = testing::TestModel::Small();  // tensor 5 is [64, 3]
  const std::string bytes = model.Bytes(5);
  common::v1::TensorEntry whole = model.manifest().tensors(5);
  DigestSum sum;
  for (const auto& [first, columns] : {std::pair(0, 1), std::pair(1, 2)}) {
    common::v1::TensorEntry part = whole;
    part.mutable_box()->set_rows(64);
    part.mutable_box()->set_first_column(first);
    part.mutable_box()->set_columns(columns);
    std::string held;
    for (int row = 0; row < 64; ++row) {
      held += bytes.substr(4 * (3 * row + first), 4 * columns);
    }
    sum.Add(SumOfHeld(part, Bytes(held)));
  }
  EXPECT_EQ(sum.Hex(), SumOfHeld(whole, Bytes(bytes)).Hex());
  ASSERT_OK_AND_ASSIGN(const DigestSum read, ParseDigest(sum.Hex()));
  EXPECT_EQ(read, sum);
}

TEST(Digest, WhatARankHoldsCanBeAddedInAnyParts) {
  const testing::TestModel model = testing::TestModel::Small();
  common::v1::TensorEntry part = model.manifest().tensors(5);  // [64, 3]
  part.mutable_box()->set_first_row(7);
  part.mutable_box()->set_rows(50);
  part.mutable_box()->set_first_column(1);
  for (const int columns : {1, 2}) {
    part.mutable_box()->set_columns(columns);
    const std::string held = model.Bytes(5).substr(0, 4 * 50 * columns);
    for (const int64_t step : {1, 3, 8, 20, 199, 1000}) {
      DigestSum sum;
      const auto size = static_cast<int64_t>(held.size());
      for (int64_t at = 0; at < size; at += step) {
        AddHeld(part, size, at, Bytes(held).subspan(at, std::min(step, size - at)), sum);
      }
      EXPECT_EQ(sum.Hex(), SumOfHeld(part, Bytes(held)).Hex()) << step << " bytes at a time";
    }
  }
}

TEST(Digest, WhatARankWillHoldCanBeCopiedThereAndAddedInAnyParts) {
  const testing::TestModel model = testing::TestModel::Small();
  common::v1::TensorEntry part = model.manifest().tensors(5);  // [64, 3]
  part.mutable_box()->set_first_row(7);
  part.mutable_box()->set_rows(50);
  for (const int columns : {2, 3}) {
    part.mutable_box()->set_columns(columns);
    const std::string from = model.Bytes(5).substr(0, 4 * 50 * columns);
    const auto size = static_cast<int64_t>(from.size());
    for (const int64_t step : {1, 3, 8, 20, 199, 1000}) {
      std::string held(from.size(), '\x5a');
      const absl::Span<std::byte> place(reinterpret_cast<std::byte*>(held.data()), held.size());
      DigestSum sum;
      for (int64_t at = 0; at < size; at += step) {
        CopyHeld(part, size, at, Bytes(from).subspan(at, std::min(step, size - at)),
                 place.data() + at, sum, /*streams=*/at % 2 == 0);
      }
      EXPECT_EQ(sum.Hex(), SumOfHeld(part, Bytes(from)).Hex()) << step << " bytes at a time";
      EXPECT_EQ(held, from);
    }
  }
}

TEST(Digest, WhatIsNoDigestIsNotRead) {
  for (const std::string text :
       {"", "12", "99aa06d3014798d86001c324468d497g", "99AA06D3014798D86001C324468D497F"}) {
    EXPECT_EQ(ParseDigest(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

TEST(Digest, AModelsDigestDependsOnTheOrderOfItsTensors) {
  std::vector<common::v1::TensorDigest> digests(2);
  digests[0].set_digest(hash::HexDigest("a"));
  digests[1].set_digest(hash::HexDigest("b"));
  const std::string digest = ModelDigest(digests);
  std::swap(digests[0], digests[1]);
  EXPECT_NE(ModelDigest(digests), digest);
}

}  // namespace
}  // namespace tandem::weights
