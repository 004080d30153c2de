// Small models and batches for tests of the sharded model, and the same computed on one process
// with plain autograd over whole parameters.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_FSDP_SHARDED_TEST_SUPPORT_H_
#define TANDEM_TESTS_SERVICES_TRAINER_FSDP_SHARDED_TEST_SUPPORT_H_

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "common/comm/process_group.h"
#include "common/model/packed_attention.h"
#include "common/model/transformer.h"
#include "services/trainer/data/packed_batch.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

// Odd sizes on purpose: head_dim is not hidden / heads, no unit divides by 2 or 3.
model::ModelSpec SmallSpec();

using TokenSequence = std::vector<int64_t>;

// `count` sequences of lengths between 2 and `longest`, the same for the same seed.
std::vector<TokenSequence> RandomSequences(int count, int64_t longest, int64_t vocab_size,
                                           uint64_t seed);

// All sequences in one batch; every `stride`-th token is predicted from the one before it.
PackedBatch Pack(const std::vector<TokenSequence>& sequences, int64_t stride = 1);

// The batches of one rank: sequence i goes to batch i mod (ranks * micro_batches), so some are
// empty where sequences are few.
std::vector<PackedBatch> Deal(const std::vector<TokenSequence>& sequences, int rank, int ranks,
                              int micro_batches, int64_t stride = 1);

// A weighted sum of log-probs and entropies.
at::Tensor TestLoss(const model::LogProbs& out);

// Values that every rank can make for its shard: the seed's weights, and norms and biases that are
// not all alike.
void SetParameters(ShardedModel& model, uint64_t seed);

// The whole model on one process.
class WholeModel : public model::ParameterProvider {
 public:
  WholeModel(const model::ModelSpec& spec, uint64_t seed);  // as SetParameters
  const at::Tensor& Get(int index) const override { return parameters_[index]; }

  const model::Transformer& transformer() const { return transformer_; }
  model::LogProbs Forward(const PackedBatch& batch) const;
  at::Tensor ForwardValues(const PackedBatch& batch) const;  // of a value model
  // Each parameter's gradient, flat; zeros where there is none.
  std::vector<at::Tensor> Gradients() const;
  std::vector<at::Tensor>& parameters() { return parameters_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  at::Tensor Hidden(const PackedBatch& batch) const;  // of the batch's rows, after the final norm

  model::Transformer transformer_;
  std::vector<at::Tensor> parameters_;  // leaves
};

// Every parameter's whole tensor, flat float32, of what `part` says of a shard; zeros for the
// gradient of a frozen one. Collective among the ranks that share a copy of the model.
std::vector<at::Tensor> GatherParameters(ShardedModel& model, comm::ProcessGroup& group,
                                         at::Tensor UnitShard::*part);

// The same for the part of the model that this rank's table describes. Collective among all ranks.
std::vector<at::Tensor> GatherParameters(ShardedModel& model, const comm::DeviceMesh& mesh,
                                         at::Tensor UnitShard::*part);

// What the table's rank holds of each of the whole model's parameters, flat.
std::vector<at::Tensor> PartOfParameters(const model::ModelSpec& spec,
                                         const model::ParameterTable& table,
                                         const std::vector<at::Tensor>& whole);

// Largest difference over the largest expected entry.
double RelativeDifference(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_FSDP_SHARDED_TEST_SUPPORT_H_
