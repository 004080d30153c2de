// The digests that shards keep of themselves, against those of the whole tensors.
#include "services/trainer/fsdp/shard_digests.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/model/segment_box.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kElement = 2;

absl::Span<const std::byte> BytesOf(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// What a tensor-parallel rank has of the tensors, as the flat buffers of its units.
std::vector<std::string> UnitsOf(const model::ParameterTable& table,
                                 const std::vector<std::string>& tensors) {
  std::vector<std::string> units;
  for (const model::Unit& unit : table.units()) units.emplace_back(unit.numel * kElement, '\0');
  for (size_t i = 0; i < tensors.size(); ++i) {
    const model::ParameterTable::SegmentRef ref = table.segments()[i];
    const model::Segment& segment = table.segment(ref);
    const model::Box box = model::BoxOf(segment);
    const int64_t columns = box.width();
    for (int64_t row = 0; row < segment.shape[0]; ++row) {
      const int64_t from =
          (box.row_begin + row) * model::WholeBox(segment.global_shape).width() + box.column_begin;
      units[table.parameter(ref.parameter).unit].replace(
          (segment.offset + row * columns) * kElement, columns * kElement,
          tensors[i].substr(from * kElement, columns * kElement));
    }
  }
  return units;
}

TEST(ShardDigests, OfAllShardsAddUpToThoseOfTheTensors) {
  const model::ModelSpec spec = SmallSpec();
  const model::ParameterTable whole(spec);
  std::mt19937 random(4);
  std::vector<std::string> tensors;
  for (const model::ParameterTable::SegmentRef ref : whole.segments()) {
    std::string& bytes = tensors.emplace_back(whole.segment(ref).numel * kElement, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
  }
  for (const auto& [tp, shards] : {std::pair{1, 1}, {1, 3}, {2, 1}, {2, 3}}) {
    std::vector<weights::DigestSum> sums(tensors.size());
    std::vector<int64_t> elements(tensors.size());
    for (int rank = 0; rank < tp; ++rank) {
      const model::ParameterTable table(spec, {}, {rank, tp});
      const std::vector<std::string> units = UnitsOf(table, tensors);
      for (size_t unit = 0; unit < units.size(); ++unit) {
        const int64_t owned = (table.units()[unit].numel + shards - 1) / shards;
        for (int shard = 0; shard < shards; ++shard) {
          std::string bytes = units[unit] + std::string(owned * shards * kElement, '\0');
          bytes = bytes.substr(shard * owned * kElement, owned * kElement);
          ShardDigests digests(table, static_cast<int>(unit), shard * owned, owned, kElement);
          for (int round = 0; round < 2; ++round) {
            digests.Clear();
            std::vector<std::thread> threads;
            for (int64_t begin = 0; begin < owned;) {
              const int64_t end = std::min<int64_t>(owned, begin + 1 + random() % 700);
              EXPECT_FALSE(digests.is_complete());
              threads.emplace_back([&, begin, end] {
                digests.Add(begin, end, BytesOf(bytes).data() + begin * kElement);
              });
              if (threads.size() == 4 || end == owned) {
                for (std::thread& thread : threads) thread.join();
                threads.clear();
              }
              begin = end;
            }
            EXPECT_TRUE(digests.is_complete());
          }
          for (const ShardDigests::Part& part : digests.parts()) {
            const auto ref = table.segments()[part.tensor];
            const bool again = rank > 0 && table.parameter(ref.parameter).tensor_parallel.kind ==
                                               model::Placement::Kind::kReplicate;
            if (again) continue;
            sums[part.tensor].Add(part.sum);
            elements[part.tensor] += part.elements;
          }
        }
      }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      weights::DigestSum expected;
      weights::AddRange(0, BytesOf(tensors[i]), expected);
      EXPECT_EQ(sums[i], expected) << i << ", " << tp << " x " << shards << " ranks";
      EXPECT_EQ(elements[i] * kElement, static_cast<int64_t>(tensors[i].size()));
    }
  }
}

// As they are after every step of the optimizer, and of what is computed with.
TEST(ShardDigests, FollowTheOptimizer) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    testing::LocalMesh world({.dp_shard = 2});
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = SmallSpec();
      options.mesh = &mesh;
      options.compute_dtype = type;
      options.keeps_digests = true;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, 3);
      AdamW optimizer({}, *model, mesh);
      const auto sequences = RandomSequences(4, 12, options.spec.vocab_size, 5);
      for (int step = 0; step < 3; ++step) {
        for (size_t u = 0; u < model->shards().size(); ++u) {
          const UnitShard& shard = model->shards()[u];
          ASSERT_NE(shard.digests, nullptr);
          EXPECT_TRUE(shard.digests->is_complete());
          ShardDigests fresh(model->transformer().table(), static_cast<int>(u), shard.offset,
                             shard.computed.numel(), shard.computed.element_size());
          fresh.Add(0, shard.computed.numel(),
                    static_cast<const std::byte*>(shard.computed.const_data_ptr()));
          const auto kept = shard.digests->parts();
          const auto expected = fresh.parts();
          ASSERT_EQ(kept.size(), expected.size());
          for (size_t i = 0; i < kept.size(); ++i) {
            EXPECT_EQ(kept[i].tensor, expected[i].tensor);
            EXPECT_EQ(kept[i].sum, expected[i].sum) << "unit " << u << ", step " << step;
          }
        }
        for (const PackedBatch& batch : Deal(sequences, mesh.rank(), mesh.size(), 1)) {
          ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
        }
        ASSERT_OK(optimizer.Step(0.01).status());
      }
    });
  }
}

}  // namespace
}  // namespace tandem::trainer
