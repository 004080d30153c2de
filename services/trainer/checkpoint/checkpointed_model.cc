#include "services/trainer/checkpoint/checkpointed_model.h"

#include <utility>

#include "common/model/parameter_table.h"

namespace tandem::trainer {
namespace {

// The runs of a unit's elements that a tensor holds, one range after another.
std::vector<checkpoint::Run> RunsOf(const model::ParameterTable& table, size_t unit,
                                    int64_t shard_offset,
                                    const std::vector<model::Range>& elements) {
  std::vector<checkpoint::Run> out;
  int64_t at = 0;
  for (const model::Range& range : elements) {
    for (checkpoint::Run& run : checkpoint::RunsOfRange(
             table, static_cast<int>(unit), shard_offset + range.begin, shard_offset + range.end)) {
      run.offset += at;
      out.push_back(std::move(run));
    }
    at += range.size();
  }
  return out;
}

}  // namespace

std::vector<ShardPart> ShardParts(const CheckpointedModel& model) {
  const model::ParameterTable& table = model.model->transformer().table();
  const std::vector<UnitShard>& shards = model.model->shards();
  std::vector<ShardPart> parts;
  for (size_t u = 0; u < shards.size(); ++u) {
    const UnitShard& shard = shards[u];
    parts.push_back({checkpoint::kMasterKind, shard.master,
                     RunsOf(table, u, shard.offset, {{0, shard.master.numel()}})});
    for (const Optimizer::ShardState& state : model.optimizer->StateOf(u)) {
      parts.push_back({state.kind, state.tensor, RunsOf(table, u, shard.offset, state.elements)});
    }
  }
  return parts;
}

checkpoint::ModelEntry DescribeModel(const CheckpointedModel& model) {
  const model::Transformer& transformer = model.model->transformer();
  checkpoint::ModelEntry out;
  out.name = model.name;
  out.architecture = transformer.spec().architecture;
  const std::vector<std::string> state_kinds = model.optimizer->AllKinds();
  out.kinds = {checkpoint::kMasterKind};
  out.kinds.insert(out.kinds.end(), state_kinds.begin(), state_kinds.end());
  out.optimizer_steps = model.optimizer->num_steps();
  for (const model::ParameterTable::SegmentRef ref : transformer.table().segments()) {
    const model::Segment& segment = transformer.table().segment(ref);
    checkpoint::LogicalTensor& tensor = out.tensors.emplace_back();
    tensor.name = segment.name;
    tensor.shape = segment.global_shape;
    tensor.trainable = transformer.table().parameter(ref.parameter).trainable;
    if (!tensor.trainable) continue;
    const std::vector<std::string> own = model.optimizer->KindsOf(segment, ref.parameter);
    if (own != state_kinds) tensor.state_kinds = own;
  }
  return out;
}

}  // namespace tandem::trainer
