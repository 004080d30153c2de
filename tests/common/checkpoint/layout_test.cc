#include "common/checkpoint/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/tiny_model.h"

namespace tandem::checkpoint {
namespace {

TEST(Layout, RunsOfAllRanksHoldEveryElementOnceAndNoPadding) {
  const auto spec = model::ParseModelSpec(testing::TinyModelConfig(), "config.json");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const model::ParameterTable table(*spec);
  for (const int ranks : {1, 2, 3, 7}) {
    std::map<std::string, std::vector<int>> seen;
    for (const auto ref : table.segments()) {
      seen[table.segment(ref).name].resize(static_cast<size_t>(table.segment(ref).numel));
    }
    for (size_t u = 0; u < table.units().size(); ++u) {
      const int64_t owned = (table.units()[u].numel + ranks - 1) / ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        int64_t end_of_last = 0;
        for (const checkpoint::Run& run :
             RunsOfRange(table, static_cast<int>(u), rank * owned, (rank + 1) * owned)) {
          EXPECT_EQ(run.offset, end_of_last);  // one after another in the shard
          end_of_last = run.offset + run.count;
          ForEachStretch(run, [&](int64_t first, int64_t count, int64_t) {
            for (int64_t i = 0; i < count; ++i) ++seen[run.tensor][first + i];
          });
        }
      }
    }
    for (const auto& [name, counts] : seen) {
      EXPECT_THAT(counts, ::testing::Each(1)) << name << ", " << ranks << " ranks";
    }
  }
}

// Every element of the run with its place in the tensor, one by one.
std::vector<std::pair<int64_t, int64_t>> Naive(const Run& run, int64_t first, int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t in_box = run.begin + i;
    const int64_t row = run.box.row_begin + in_box / run.box.width();
    const int64_t column = run.box.column_begin + in_box % run.box.width();
    const int64_t at = row * run.columns() + column;
    if (at >= first && at < first + count) out.emplace_back(at, i);
  }
  return out;
}

TEST(Layout, IntersectsBoxesAsElementByElement) {
  const std::vector<int64_t> shape = {4, 5};
  for (const Box& box : {Box{0, 4, 0, 5}, Box{1, 3, 0, 5}, Box{0, 4, 1, 3}, Box{2, 4, 4, 5}}) {
    for (int64_t begin = 0; begin < box.numel(); ++begin) {
      for (int64_t end = begin; end <= box.numel(); ++end) {
        const checkpoint::Run run{"t", shape, box, begin, end - begin, 0};
        for (int64_t first = 0; first < 20; first += 3) {
          for (const int64_t count : {0, 1, 4, 9}) {
            if (first + count > 20) continue;
            std::vector<std::pair<int64_t, int64_t>> found;
            Intersect(run, first, count, [&](int64_t at, int64_t length, int64_t in_run) {
              for (int64_t i = 0; i < length; ++i) found.emplace_back(at + i, in_run + i);
            });
            ASSERT_EQ(found, Naive(run, first, count)) << begin << " " << end << " " << first;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::checkpoint
