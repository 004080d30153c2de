#include "services/trainer/data/shared_prefix.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Sequences of which each token predicts the next; the last one 99.
PackedBatch Pack(const std::vector<std::vector<int64_t>>& sequences) {
  PackedBatch batch;
  batch.cu_seqlens = {0};
  std::vector<int64_t> ids, positions, rows, targets;
  for (const std::vector<int64_t>& sequence : sequences) {
    for (size_t t = 0; t < sequence.size(); ++t) {
      rows.push_back(static_cast<int64_t>(ids.size()));
      ids.push_back(sequence[t]);
      positions.push_back(static_cast<int64_t>(t));
      targets.push_back(t + 1 < sequence.size() ? sequence[t + 1] : 99);
    }
    batch.cu_seqlens.push_back(static_cast<int64_t>(ids.size()));
  }
  batch.token_ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.rows = at::tensor(rows, at::kLong);
  batch.targets = at::tensor(targets, at::kLong);
  batch.temperatures = at::ones({batch.rows.numel()}, at::kFloat);
  return batch;
}

std::vector<int64_t> IntegersOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

TEST(SharePrefixes, LeavesOutWhatASequenceHasInCommonWithTheOneBeforeIt) {
  const PackedBatch whole = Pack({{1, 2, 3, 4}, {1, 2, 3, 5, 6}, {1, 2}});

  const PackedBatch shared = SharePrefixes(whole);

  EXPECT_THAT(IntegersOf(shared.token_ids), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(IntegersOf(shared.positions), ElementsAre(0, 1, 2, 3, 3, 4));
  EXPECT_THAT(shared.cu_seqlens, ElementsAre(0, 4, 6, 6));
  EXPECT_THAT(shared.prefixes, ElementsAre(0, 0, 0, 3, 0, 2));
  EXPECT_THAT(IntegersOf(shared.rows), ElementsAre(0, 1, 2, 3, 0, 1, 2, 4, 5, 0, 1));
  EXPECT_TRUE(at::equal(shared.targets, whole.targets));
}

TEST(SharePrefixes, BeginsAnewWhereTheNextSequencesShareMore) {
  // All begin with 1; the second and third with five tokens more.
  const PackedBatch shared = SharePrefixes(
      Pack({{1, 2}, {1, 3, 3, 3, 3, 3, 4}, {1, 3, 3, 3, 3, 3, 5}, {1, 3, 3, 3, 3, 3, 6}}));

  EXPECT_THAT(shared.cu_seqlens, ElementsAre(0, 2, 9, 10, 11));
  EXPECT_THAT(shared.prefixes, ElementsAre(0, 0, 2, 0, 2, 6, 2, 6));
}

TEST(SharePrefixes, LeavesABatchWithoutCommonTokensAsItIs) {
  const PackedBatch shared = SharePrefixes(Pack({{1, 2}, {2, 1}, {}}));

  EXPECT_THAT(shared.prefixes, IsEmpty());
  EXPECT_THAT(IntegersOf(shared.token_ids), ElementsAre(1, 2, 2, 1));
}

}  // namespace
}  // namespace tandem::trainer
