// CountedOps: the operations of a layer's forward pass (common/model/layers/layer_forward.h) as
// sizes: what each allocates, what its autograd function saves, and what its backward pass
// allocates. The order of the operations, and so how long each tensor lives, is the model's own.
//
// The facts about an operation are those of its code: norm.cc saves the sum and a row's moments;
// linear.cc its input; rotary.cc the projection if q and k are normed; packed_attention.cc q, k, v,
// its result and log-sum-exp; delta_attention.cc, and on a GPU cuda_delta_attention.cc, the projection;
// activation.cc its input. On a GPU the operations of eager_ops.cc are counted, which compute in float32
// and save more than the kernels that take their place.
//
// Experts: a token has top_k rows whatever the router chooses, so the sizes of all tensors are
// known, unless ranks split the experts: then the rows of a rank's experts are CountedBatch::expert_load
// times an even share. Only the gradients of experts without rows do not exist; the count assumes as
// many experts with rows as the batch can reach.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_COUNTED_OPS_H_
#define TANDEM_TOOLS_TANDEM_PLAN_COUNTED_OPS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/layers/attention_spec.h"
#include "common/model/parameter_table.h"
#include "common/rank_setup/rank_setup.h"
#include "tools/tandem/plan/counted_tensor.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

inline constexpr int64_t kFloat = 4;  // bytes

// The fullest micro-batch of one rank, in the sizes that operations depend on.
struct CountedBatch {
  int64_t tokens = 0;            // of the residual stream
  int64_t attention_tokens = 0;  // tokens that attention sees: those of all ranks of a sequence
  int64_t sequences = 1;
  int64_t longest_sequence = 0;
  int64_t hidden = 0;
  int64_t element_bytes = 4;
  int64_t tensor_ranks = 1;    // that split a layer
  int64_t sequence_ranks = 1;  // that share a sequence (Ulysses)
  int64_t expert_ranks = 1;    // that split the experts
  double expert_load = 1.0;    // with expert_ranks above 1: RankWorkload::expert_load
  setup::Kernels kernels = setup::Kernels::kCpu;
  // On a GPU: tokens of images see one another, which no fused kernel computes
  // (common/model/chunked_attention.h).
  bool sees_ahead = false;

  // Bytes of [tokens, columns] in compute dtype.
  int64_t Bytes(int64_t columns) const { return tokens * columns * element_bytes; }
};

// What a layer reads and makes besides the stream (common/model/carried_tensors.h).
struct CountedCarried {
  CountedTensor kv;     // of another layer; undefined: its own
  CountedTensor input;  // undefined: none
  bool makes_kv = false;
};

// Results that are cheap to compute, freed between the forward and the backward pass.
class CountedRecomputation {
 public:
  // `take` allocates the memory again.
  void Add(CountedStorage result, std::function<Size()> take) {
    results_.push_back({std::move(result), std::move(take)});
  }
  // Frees the results; forgets those that no operation saved.
  void Drop();
  void Restore();

 private:
  struct Result {
    CountedStorage storage;
    std::function<Size()> take;
  };
  std::vector<Result> results_;
};

class CountedOps {
 public:
  using Tensor = CountedTensor;
  static constexpr bool kMayCacheLatents = false;  // training has no cache
  struct Residual {
    Tensor x, delta;
  };
  struct Normed {
    Tensor residual, normed;
  };
  struct Routing {
    Tensor weights;
    CountedStorage places;     // of the tokens' rows, and the token of each row
    int64_t num_rows = 0;      // of the rank's tokens
    int64_t num_computed = 0;  // of the rank's experts
    bool weigh_inputs = false;
  };

  // `tape`: null if there is no graph. `recomputation`: null if all results are kept. `gradients`
  // receives those of parameters in the backward pass. The arguments must outlive the backward
  // pass.
  CountedOps(MemoryLedger& ledger, const model::ParameterTable& table, const CountedBatch& batch,
             const model::AttentionSpec& attention, CountedTape* tape,
             CountedRecomputation* recomputation, std::vector<Size>& gradients);

  // Call before the layer's operations.
  void Carry(CountedCarried carried) { carried_ = std::move(carried); }
  // After them, with CountedCarried::makes_kv: the keys and values for other layers.
  Tensor TakeMadeKv() { return std::exchange(made_kv_, {}); }
  // Bytes of keys and values, side by side.
  int64_t KvBytes() const { return batch_.Bytes(kv_heads_ * (head_dim_ + value_dim_)); }

  Normed AddNorm(const Residual& in, const model::NormSpec& spec,
                 const model::NormParameters& norm);
  Tensor Normalize(const Tensor& x, const model::NormSpec& spec, const model::NormParameters& norm);
  Tensor Sum(const Residual& in);
  Tensor Scale(const Tensor& x, double factor);
  Tensor ScaleElements(const Tensor& x, int scale);
  Tensor ColumnParallel(const Tensor& x, int weight, int bias, const char* tag);
  Tensor RowParallel(const Tensor& x, int weight, int bias, const char* tag);
  Tensor Attend(const Tensor& qkv, const model::AttentionParameters& at);
  Tensor AttendToOthers(const Tensor& queries, const model::AttentionParameters& at);
  Tensor Gate(const Tensor& attended, const Tensor& gate);
  Tensor AttendLinearly(const Tensor& projected, const model::DeltaParameters& at);
  Tensor Replicated(const Tensor& x, int weight, int bias);
  Tensor Columns(const Tensor& x, int64_t begin, int64_t size);
  Tensor AttendLatent(const Tensor& q, const Tensor& shared, const Tensor& kv);
  Tensor Activate(const Tensor& gate_up, const model::FeedForwardSpec& spec, int alphas);
  Tensor GateInput(const Tensor& gate, const model::InputGateSpec& spec);
  Routing Route(const Tensor& x, const model::RoutingSpec& spec, const model::RouterParameters& at);
  Tensor Dispatch(const Tensor& x, const Routing& routing);
  Tensor ExpertColumnParallel(const Tensor& rows, const model::ExpertMatrices& at,
                              const Routing& routing);
  Tensor ExpertRowParallel(const Tensor& rows, const model::ExpertMatrices& at,
                           const Routing& routing);
  Tensor Combine(const Tensor& results, const Routing& routing);
  Tensor AddGated(const Tensor& routed, const Tensor& shared, const Tensor& x, int gate);

 private:
  // q and k, rotated, in memory of their own; v in the projection's.
  struct Heads {
    Tensor qk;
    CountedStorage v;  // null: with q and k; keys too, if they are another layer's
  };
  // Elements of a token's query heads, and of its keys and values, on this rank.
  int64_t HeadColumns(int64_t heads, int64_t kv_heads) const {
    return heads * head_dim_ + kv_heads * (head_dim_ + value_dim_);
  }

  Size Take(int64_t bytes) { return ledger_.Take(MemoryKind::kActivations, bytes); }
  Tensor New(int64_t bytes) { return {Take(bytes), bytes}; }
  void Record(std::function<void()> backward);
  void Recompute(const Tensor& result);
  bool IsTrainable(int parameter) const;  // false for -1
  // Adds the gradients of parameters that have one: of their own size, or sums over rows that are
  // computed in float32 blocks.
  void AddMatrixGradient(int parameter);
  void AddRowSumGradients(std::initializer_list<int> parameters);
  // A norm's results, and what it saves.
  Normed NormOf(const Residual& in, const model::NormSpec& spec, const model::NormParameters& norm);

  Tensor Linear(const Tensor& x, int weight, int bias);
  Tensor LinearInFloat32(const Tensor& x, int weight);
  // Weights times the factors of the experts that they belong to.
  Tensor ScaleByExpert(const Tensor& weights, int scales);
  Tensor AddRouterBias(const Tensor& logits, int bias);
  // Moves rows between the ranks that split the experts: `bytes` arrive. computed_bytes: of the
  // rows of this rank's experts, which are what is moved or what arrives.
  Tensor Exchange(const Tensor& rows, int64_t bytes, int64_t computed_bytes);
  Tensor Weigh(const Tensor& rows, const Routing& routing);
  Tensor SumOfExperts(const Tensor& results, const Routing& routing);
  // x, whose gradient is summed over the ranks in a tensor of its own.
  Tensor CopyToRanks(const Tensor& x);
  Tensor SumOverRanks(const Tensor& x);
  Tensor Limited(const Tensor& qkv);
  // Queries and keys with the keys once more, as values.
  Tensor AppendKeys(const Tensor& qk);
  Heads Rotate(const Tensor& qkv, const model::AttentionParameters& at);
  // Rotates and joins the heads of latent attention.
  Heads Join(const Tensor& q, const Tensor& shared, const Tensor& kv);
  // Attends with heads of this rank's tokens.
  Tensor AttendHeads(const Heads& heads);
  // Sends tokens' heads to the ranks that compute them.
  Heads ToHeads(const Heads& heads);
  Tensor Scores(const Heads& heads);
  Tensor ToTokens(const Tensor& attended);

  // Bytes of `columns` for each token that attention sees.
  int64_t AttentionBytes(int64_t columns) const;

  MemoryLedger& ledger_;
  const model::ParameterTable& table_;
  const CountedBatch& batch_;
  CountedTape* const tape_;
  CountedRecomputation* const recomputation_;
  std::vector<Size>& gradients_;
  CountedCarried carried_;
  Tensor made_kv_;
  const model::AttentionSpec attention_;
  const int64_t head_dim_, value_dim_;
  const int64_t heads_, kv_heads_;                      // of this rank's projections
  const int64_t attention_heads_, attention_kv_heads_;  // that it attends with
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_COUNTED_OPS_H_
