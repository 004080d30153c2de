#include "common/weights/compare_digests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/weights/tensor_digests.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A matrix [4, 2] and a vector [3] of one-byte elements, whole or cut by rows over two ranks.
class ReplicaDigestsTest : public ::testing::Test {
 protected:
  struct Rank {
    Manifest manifest;
    DigestList digests;
  };

  static TensorEntry Entry(const std::string& name, std::vector<int64_t> shape) {
    TensorEntry entry;
    entry.set_name(name);
    entry.mutable_shape()->Assign(shape.begin(), shape.end());
    return entry;
  }

  static void Add(TensorEntry entry, const std::string& bytes, Rank& rank) {
    const absl::Span<const std::byte> span(reinterpret_cast<const std::byte*>(bytes.data()),
                                           bytes.size());
    *rank.digests.Add() = MakeTensorDigest(entry, SumOfHeld(entry, span));
    *rank.manifest.add_tensors() = std::move(entry);
  }

  static Rank Whole(const std::string& matrix, const std::string& vector) {
    Rank rank;
    Add(Entry("matrix", {4, 2}), matrix, rank);
    Add(Entry("vector", {3}), vector, rank);
    return rank;
  }

  // Two rows of the matrix; all of the vector.
  static Rank Half(int half, const std::string& rows, const std::string& vector) {
    Rank rank;
    TensorEntry part = Entry("matrix", {4, 2});
    part.mutable_box()->set_first_row(2 * half);
    part.mutable_box()->set_rows(2);
    part.mutable_box()->set_columns(2);
    Add(std::move(part), rows, rank);
    Add(Entry("vector", {3}), vector, rank);
    return rank;
  }

  absl::StatusOr<std::vector<DigestDifference>> Compare(const std::vector<Rank>& ranks) const {
    std::vector<RankDigests> stated;
    for (const Rank& rank : ranks) stated.push_back({&rank.manifest, &rank.digests});
    return CompareDigests(expected_.digests, stated);
  }

  const Rank expected_ = Whole("abcdefgh", "xyz");
};

TEST_F(ReplicaDigestsTest, WholeAndCutTensorsAgree) {
  ASSERT_OK_AND_ASSIGN(const auto whole, Compare({Whole("abcdefgh", "xyz")}));
  EXPECT_THAT(whole, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto cut, Compare({Half(0, "abcd", "xyz"), Half(1, "efgh", "xyz")}));
  EXPECT_THAT(cut, IsEmpty());
}

// An expert that one of the ranks holds.
TEST_F(ReplicaDigestsTest, WholeAndEmptyPartsAddUp) {
  Rank holder;
  Add(Entry("matrix", {4, 2}), "abcdefgh", holder);
  Add(Entry("vector", {3}), "xyz", holder);
  Rank other;
  TensorEntry nothing = Entry("matrix", {4, 2});
  nothing.mutable_box();
  Add(std::move(nothing), "", other);
  Add(Entry("vector", {3}), "xyz", other);
  for (const std::vector<Rank>& ranks :
       {std::vector<Rank>{holder, other}, std::vector<Rank>{other, holder}}) {
    ASSERT_OK_AND_ASSIGN(const auto differences, Compare(ranks));
    EXPECT_THAT(differences, IsEmpty());
  }
}

TEST_F(ReplicaDigestsTest, EachTensorThatDiffersIsNamedOnce) {
  const Rank other = Whole("abcdefgi", "xyw");

  ASSERT_OK_AND_ASSIGN(const auto differences, Compare({other}));

  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_EQ(differences[0].tensor, "matrix");
  EXPECT_EQ(differences[0].rank, 0);
  EXPECT_EQ(differences[0].expected, expected_.digests[0].digest());
  EXPECT_EQ(differences[0].found, other.digests[0].digest());
  EXPECT_EQ(differences[1].tensor, "vector");
}

TEST_F(ReplicaDigestsTest, TheRankWhoseCopyIsWrongIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto second,
                       Compare({Half(0, "abcd", "xyz"), Half(1, "efgh", "xyw")}));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].tensor, "vector");
  EXPECT_EQ(second[0].rank, 1);

  ASSERT_OK_AND_ASSIGN(const auto first, Compare({Half(0, "abcd", "xyw"), Half(1, "efgh", "xyz")}));
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].rank, 0);
}

TEST_F(ReplicaDigestsTest, PartsThatDoNotAddUpAreAllRanks) {
  ASSERT_OK_AND_ASSIGN(const auto differences,
                       Compare({Half(0, "abcd", "xyz"), Half(1, "efgi", "xyz")}));
  ASSERT_THAT(differences, SizeIs(1));
  EXPECT_EQ(differences[0].tensor, "matrix");
  EXPECT_EQ(differences[0].rank, DigestDifference::kAllRanks);
}

TEST_F(ReplicaDigestsTest, ARankThatStatesOtherTensorsIsNamed) {
  Rank renamed = Whole("abcdefgh", "xyz");
  renamed.digests[1].set_name("bias");
  EXPECT_THAT(Compare({renamed}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("digest 1: expected tensor vector, found bias; rank 0")));

  Rank shorter = Whole("abcdefgh", "xyz");
  shorter.digests.RemoveLast();
  EXPECT_THAT(Compare({shorter}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected 2 digests, found 1")));
}

}  // namespace
}  // namespace tandem::weights
