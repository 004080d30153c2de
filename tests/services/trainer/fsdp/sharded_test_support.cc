#include "tests/services/trainer/fsdp/sharded_test_support.h"

#include <random>

#include "common/model/random_init.h"

namespace tandem::trainer {
namespace {

// Every element of a parameter moves by a little that depends on its place.
void Perturb(int parameter, at::Tensor flat) {
  const at::Tensor index = at::arange(flat.numel(), at::kDouble);
  flat.add_((index * 0.37 + parameter).sin().mul(0.02).to(at::kFloat));
}

// Each unit whole, in one piece.
std::vector<at::Tensor> FlatUnits(const model::ModelSpec& spec, const model::ParameterTable& table,
                                  uint64_t seed) {
  std::vector<at::Tensor> flats;
  for (const model::Unit& unit : table.units()) flats.push_back(at::zeros({unit.numel}));
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    at::Tensor& flat = flats[table.parameter(ref.parameter).unit];
    model::RandomInit(spec, table, ref, seed, 0, segment.numel, at::kFloat,
                      flat.mutable_data_ptr<float>() + segment.offset);
  }
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    const model::Parameter& parameter = table.parameter(static_cast<int>(i));
    Perturb(static_cast<int>(i),
            flats[parameter.unit].narrow(0, parameter.offset, parameter.numel));
  }
  return flats;
}

}  // namespace

model::ModelSpec SmallSpec() {
  model::ModelSpec spec;
  spec.architecture = "Qwen2ForCausalLM";
  spec.vocab_size = 61;
  spec.hidden_size = 20;
  spec.max_position_embeddings = 128;
  spec.initializer_range = 0.2;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 28;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 8;
  layer.attention.qkv_bias = true;
  spec.layers.assign(3, layer);
  return spec;
}

std::vector<TokenSequence> RandomSequences(int count, int64_t longest, int64_t vocab_size,
                                           uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenSequence> sequences(count);
  for (TokenSequence& sequence : sequences) {
    sequence.resize(2 + random() % (longest - 1));
    for (int64_t& id : sequence) id = static_cast<int64_t>(random() % vocab_size);
  }
  return sequences;
}

PackedBatch Pack(const std::vector<TokenSequence>& sequences, int64_t stride) {
  std::vector<int64_t> ids, positions, rows, targets;
  PackedBatch batch;
  batch.cu_seqlens.push_back(0);
  for (const TokenSequence& sequence : sequences) {
    for (size_t i = 0; i + 1 < sequence.size(); ++i) {
      if (i % stride == 0) {
        rows.push_back(static_cast<int64_t>(ids.size()));
        targets.push_back(sequence[i + 1]);
      }
      ids.push_back(sequence[i]);
      positions.push_back(static_cast<int64_t>(i));
    }
    batch.cu_seqlens.push_back(static_cast<int64_t>(ids.size()));
  }
  batch.token_ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.rows = at::tensor(rows, at::kLong);
  batch.targets = at::tensor(targets, at::kLong);
  batch.temperatures = at::ones({static_cast<int64_t>(rows.size())});
  return batch;
}

std::vector<PackedBatch> Deal(const std::vector<TokenSequence>& sequences, int rank, int ranks,
                              int micro_batches, int64_t stride) {
  std::vector<PackedBatch> batches;
  for (int m = 0; m < micro_batches; ++m) {
    std::vector<TokenSequence> mine;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (static_cast<int>(i % (ranks * micro_batches)) == m * ranks + rank) {
        mine.push_back(sequences[i]);
      }
    }
    batches.push_back(Pack(mine, stride));
  }
  return batches;
}

at::Tensor TestLoss(const model::LogProbs& out) {
  return (-0.05 * out.logprobs - 0.01 * out.entropy + 0.002 * out.logprobs.square()).sum();
}

std::vector<at::Tensor> PartOfParameters(const model::ModelSpec& spec,
                                         const model::ParameterTable& table,
                                         const std::vector<at::Tensor>& whole) {
  const model::ParameterTable whole_table(spec);
  std::vector<at::Tensor> parts;
  for (size_t p = 0; p < whole.size(); ++p) {
    const model::Parameter& parameter = table.parameter(static_cast<int>(p));
    const model::Parameter& logical = whole_table.parameter(static_cast<int>(p));
    std::vector<at::Tensor> boxes;
    for (size_t i = 0; i < parameter.segments.size(); ++i) {
      const model::Segment& segment = parameter.segments[i];
      at::Tensor box = whole[p]
                           .detach()
                           .view(logical.shape)
                           .narrow(0, logical.segments[i].row, logical.segments[i].shape[0]);
      for (size_t d = 0; d < segment.shape.size(); ++d) {
        box = box.narrow(static_cast<int64_t>(d), segment.start[d], segment.shape[d]);
      }
      boxes.push_back(box.flatten());
    }
    parts.push_back(at::cat(boxes));
  }
  return parts;
}

void SetParameters(ShardedModel& model, uint64_t seed) {
  const model::ModelSpec& spec = model.transformer().spec();
  const model::ParameterTable& table = model.transformer().table();
  const WholeModel whole(spec, seed);
  const std::vector<at::Tensor> parts = PartOfParameters(spec, table, whole.parameters());
  for (size_t p = 0; p < parts.size(); ++p) {
    const model::Parameter& parameter = table.parameter(static_cast<int>(p));
    UnitShard& shard = model.shards()[parameter.unit];
    const int64_t begin = std::max(parameter.offset, shard.offset);
    const int64_t end =
        std::min(parameter.offset + parameter.numel, shard.offset + shard.master.numel());
    if (begin >= end) continue;
    shard.master.narrow(0, begin - shard.offset, end - begin)
        .copy_(parts[p].narrow(0, begin - parameter.offset, end - begin));
  }
  model.MastersChanged();
}

WholeModel::WholeModel(const model::ModelSpec& spec, uint64_t seed) : transformer_(spec) {
  const model::ParameterTable& table = transformer_.table();
  const std::vector<at::Tensor> flats = FlatUnits(spec, table, seed);
  for (const model::Parameter& parameter : table.parameters()) {
    parameters_.push_back(flats[parameter.unit]
                              .narrow(0, parameter.offset, parameter.numel)
                              .view(parameter.shape)
                              .clone()
                              .requires_grad_());
  }
}

at::Tensor WholeModel::Hidden(const PackedBatch& batch) const {
  const model::Rotary rotary = transformer_.MakeRotary(batch.positions);
  model::PackedAttention attention(at::tensor(batch.cu_seqlens, at::kLong),
                                   model::PackedAttention::Implementation::kEager);
  const at::Tensor x =
      transformer_.Blocks(*this, batch.token_ids, batch.positions, rotary, attention);
  return transformer_.FinalNorm(*this, x.index_select(0, batch.rows));
}

model::LogProbs WholeModel::Forward(const PackedBatch& batch) const {
  return transformer_.HeadLogProbs(*this, Hidden(batch), batch.targets, batch.temperatures);
}

at::Tensor WholeModel::ForwardValues(const PackedBatch& batch) const {
  return transformer_.Values(*this, Hidden(batch));
}

std::vector<at::Tensor> WholeModel::Gradients() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad().defined() ? parameter.grad().flatten()
                                                   : at::zeros({parameter.numel()}));
  }
  return gradients;
}

namespace {

// groups: of each unit, the ranks that share it.
std::vector<at::Tensor> Gathered(ShardedModel& model,
                                 const std::vector<comm::ProcessGroup*>& groups,
                                 at::Tensor UnitShard::*part) {
  std::vector<at::Tensor> units;
  for (UnitShard& shard : model.shards()) {
    comm::ProcessGroup& group = *groups[units.size()];
    units.push_back(at::zeros({shard.padded_numel}));
    if (!(shard.*part).defined()) continue;
    auto work = group.AllGather(units.back(), (shard.*part).to(at::kFloat), "test");
    if (!work.ok() || !(*work)->Wait().ok()) return {};
  }
  std::vector<at::Tensor> parameters;
  for (const model::Parameter& parameter : model.transformer().table().parameters()) {
    parameters.push_back(units[parameter.unit].narrow(0, parameter.offset, parameter.numel));
  }
  return parameters;
}

}  // namespace

std::vector<at::Tensor> GatherParameters(ShardedModel& model, comm::ProcessGroup& group,
                                         at::Tensor UnitShard::*part) {
  return Gathered(model, std::vector<comm::ProcessGroup*>(model.shards().size(), &group), part);
}

std::vector<at::Tensor> GatherParameters(ShardedModel& model, const comm::DeviceMesh& mesh,
                                         at::Tensor UnitShard::*part) {
  std::vector<comm::ProcessGroup*> groups;
  for (const model::Unit& unit : model.transformer().table().units()) {
    groups.push_back(unit.of_experts ? &mesh.expert_shard() : &mesh.shard());
  }
  return Gathered(model, groups, part);
}

double RelativeDifference(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return INFINITY;
  const double largest = expected.abs().max().item<double>();
  return (actual - expected).abs().max().item<double>() / std::max(largest, 1e-30);
}

}  // namespace tandem::trainer
