// bfloat16 gradients of ranks on several hosts: the sums are those of one big host, and what travels
// between hosts is one sum of each host, however many ranks it has.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/fakes/forwarding_group.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr uint64_t kSeed = 11;

struct Reduction {
  at::ScalarType compute_dtype = at::kBFloat16;
  at::ScalarType reduce_dtype = at::kFloat;
  bool tied = false;
};

// Adds the bytes of gradients that a rank sends to other hosts to `sent`.
class CountingGroup : public testing::ForwardingGroup {
 public:
  // elsewhere: ranks of the group on other hosts.
  CountingGroup(std::unique_ptr<comm::ProcessGroup> group, int64_t elsewhere,
                std::atomic<int64_t>& sent)
      : ForwardingGroup(std::move(group)), elsewhere_(elsewhere), sent_(sent) {}

  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    Count(full);
    return ForwardingGroup::ReduceScatter(shard, full, tag);
  }
  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    Count(in);
    return ForwardingGroup::AllToAll(out, in, tag);
  }

 private:
  void Count(const at::Tensor& full) { sent_ += full.nbytes() / size() * elsewhere_; }

  const int64_t elsewhere_;
  std::atomic<int64_t>& sent_;
};

struct Result {
  std::vector<at::Tensor> gradients;  // whole tensors, by parameter
  int64_t sent = 0;                   // bytes of gradients between hosts, of all ranks
  int64_t owned = 0;                  // elements of rank 0's shards
};

// Two micro-batches on each rank, with hosts of `per_host` ranks; `by_host`: the ranks know of them.
Result Reduce(comm::MeshShape shape, int per_host, bool by_host, const Reduction& reduction) {
  shape.ranks_per_host = by_host ? per_host : 0;
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = reduction.tied;
  for (size_t i = 1; shape.ep > 1 && i < spec.layers.size(); ++i) {
    spec.layers[i].experts = {
        .num_experts = 12, .intermediate_size = 9, .routing = {.top_k = 2, .normalize = true}};
  }
  const int ranks = shape.num_data_ranks();
  const std::vector<TokenSequence> sequences = RandomSequences(2 * ranks, 9, spec.vocab_size, 3);
  Result result;
  std::atomic<int64_t> sent = 0;
  testing::LocalMesh world(
      shape, [&](const std::string& name, std::unique_ptr<comm::ProcessGroup> group) {
        int64_t elsewhere = 0;
        if (absl::StrContains(name, "across_hosts")) {
          elsewhere = group->size() - 1;
        } else if (name == "world" || absl::StartsWith(name, "shard.")) {
          elsewhere = group->size() - per_host / shape.tp;
        } else if (absl::StartsWith(name, "expert_shard.")) {
          elsewhere = group->size() - per_host / shape.tp / shape.ep;
        }
        return std::make_unique<CountingGroup>(std::move(group), elsewhere, sent);
      });
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    options.compute_dtype = reduction.compute_dtype;
    options.reduce_dtype = reduction.reduce_dtype;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);
    sent = 0;
    for (const PackedBatch& batch : Deal(sequences, mesh.data_rank(), ranks, 2)) {
      ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
    }
    ASSERT_OK(model->ReduceGradients());
    ASSERT_OK(mesh.world().Barrier("counted"));
    if (mesh.rank() == 0) result.sent = sent;
    ASSERT_OK(mesh.world().Barrier("read"));
    const std::vector<at::Tensor> gradients = GatherParameters(*model, mesh, &UnitShard::grad);
    if (mesh.rank() != 0) return;
    result.gradients = gradients;
    for (const UnitShard& shard : model->shards()) result.owned += shard.grad.numel();
  });
  return result;
}

void ExpectTheSumsOfOneHost(const comm::MeshShape& shape, int per_host,
                            const Reduction& reduction) {
  const Result flat = Reduce(shape, per_host, /*by_host=*/false, reduction);
  const Result by_host = Reduce(shape, per_host, /*by_host=*/true, reduction);
  ASSERT_FALSE(flat.gradients.empty());
  ASSERT_EQ(by_host.gradients.size(), flat.gradients.size());
  // A host's sums are rounded once more.
  const double tolerance = reduction.reduce_dtype == at::kFloat ? 1e-6 : 1e-2;
  for (size_t i = 0; i < flat.gradients.size(); ++i) {
    if (flat.gradients[i].numel() == 0) continue;  // another rank's expert
    EXPECT_GT(flat.gradients[i].abs().max().item<double>(), 0) << "parameter " << i;
    EXPECT_LT(RelativeDifference(by_host.gradients[i], flat.gradients[i]), tolerance)
        << "parameter " << i;
  }
}

TEST(ReductionBetweenHosts, AddsUpWhatOneHostDoes) {
  for (const at::ScalarType reduce : {at::kFloat, at::kBFloat16}) {
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      for (const bool tied : {false, true}) {
        const Reduction reduction{compute, reduce, tied};
        ExpectTheSumsOfOneHost({.dp_shard = 4}, 2, reduction);
        ExpectTheSumsOfOneHost({.dp_shard = 6}, 3, reduction);
      }
    }
  }
}

TEST(ReductionBetweenHosts, FollowsTheMesh) {
  for (const at::ScalarType reduce : {at::kFloat, at::kBFloat16}) {
    const Reduction reduction{.reduce_dtype = reduce};
    ExpectTheSumsOfOneHost({.dp_replicate = 2, .dp_shard = 4}, 2, reduction);
    ExpectTheSumsOfOneHost({.dp_shard = 4, .tp = 2}, 4, reduction);
    ExpectTheSumsOfOneHost({.dp_shard = 4, .sequence = 2}, 2, reduction);
    ExpectTheSumsOfOneHost({.dp_shard = 4, .ep = 2}, 4, reduction);
    ExpectTheSumsOfOneHost({.dp_shard = 2, .ep = 2}, 2, reduction);
  }
}

// Per micro-batch a host sends each other one its sum, of whose parts every rank sends its own.
TEST(ReductionBetweenHosts, SendsOneSumOfEachHost) {
  constexpr int kRanks = 8;
  constexpr int kPerHost = 4;
  constexpr int kMicroBatches = 2;
  for (const at::ScalarType reduce : {at::kFloat, at::kBFloat16}) {
    const Reduction reduction{.reduce_dtype = reduce};
    const Result flat = Reduce({.dp_shard = kRanks}, kPerHost, /*by_host=*/false, reduction);
    const Result by_host = Reduce({.dp_shard = kRanks}, kPerHost, /*by_host=*/true, reduction);
    const int64_t bytes = kMicroBatches * kRanks * flat.owned;
    EXPECT_EQ(flat.sent, bytes * 2 * (kRanks - kPerHost));
    EXPECT_EQ(by_host.sent, bytes * (reduce == at::kFloat ? 4 : 2));
  }
}

TEST(ReductionBetweenHosts, NeedsHostsWithSeveralRanksEach) {
  const auto per_host = [](comm::MeshShape shape, int ranks) {
    shape.ranks_per_host = ranks;
    return std::vector<int>{shape.shards_per_host(), shape.expert_shards_per_host()};
  };
  EXPECT_EQ(per_host({.dp_shard = 8}, 4), (std::vector<int>{4, 4}));
  EXPECT_EQ(per_host({.dp_shard = 8, .tp = 2}, 8), (std::vector<int>{4, 4}));
  EXPECT_EQ(per_host({.dp_shard = 4, .ep = 2}, 4), (std::vector<int>{4, 2}));
  EXPECT_EQ(per_host({.dp_shard = 2, .ep = 4}, 4), (std::vector<int>{4, 0}));
  EXPECT_EQ(per_host({.dp_shard = 8}, 0), (std::vector<int>{0, 0}));  // not known
  EXPECT_EQ(per_host({.dp_shard = 8}, 1), (std::vector<int>{0, 0}));  // one rank on each
  EXPECT_EQ(per_host({.dp_shard = 8}, 8), (std::vector<int>{0, 0}));  // one host
  EXPECT_EQ(per_host({.dp_shard = 6}, 4), (std::vector<int>{0, 0}));  // unevenly
  EXPECT_EQ(per_host({.dp_replicate = 2, .dp_shard = 4}, 4), (std::vector<int>{0, 0}));
  EXPECT_EQ(per_host({.dp_shard = 4, .tp = 4}, 2), (std::vector<int>{0, 0}));  // tp over hosts
}

}  // namespace
}  // namespace tandem::trainer
