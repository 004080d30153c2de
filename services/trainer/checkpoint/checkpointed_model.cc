#include "services/trainer/checkpoint/checkpointed_model.h"

#include "common/model/parameter_table.h"

namespace tandem::trainer {
namespace {

constexpr const char* kKinds[] = {checkpoint::kMasterKind, "exp_avg", "exp_avg_sq"};

}  // namespace

std::vector<ShardPart> ShardParts(const CheckpointedModel& model) {
  const model::ParameterTable& table = model.model->transformer().table();
  const std::vector<UnitShard>& shards = model.model->shards();
  std::vector<ShardPart> parts;
  for (size_t u = 0; u < shards.size(); ++u) {
    const UnitShard& shard = shards[u];
    const std::vector<checkpoint::Run> runs = checkpoint::RunsOfRange(
        table, static_cast<int>(u), shard.offset, shard.offset + shard.master.numel());
    parts.push_back({kKinds[0], shard.master, runs});
    if (!table.units()[u].trainable) continue;
    parts.push_back({kKinds[1], model.optimizer->first_moments()[u], runs});
    parts.push_back({kKinds[2], model.optimizer->second_moments()[u], runs});
  }
  return parts;
}

checkpoint::ModelEntry DescribeModel(const CheckpointedModel& model) {
  const model::Transformer& transformer = model.model->transformer();
  checkpoint::ModelEntry out;
  out.name = model.name;
  out.architecture = transformer.spec().architecture;
  out.kinds.assign(std::begin(kKinds), std::end(kKinds));
  out.optimizer_steps = model.optimizer->num_steps();
  for (const model::ParameterTable::SegmentRef ref : transformer.table().segments()) {
    const model::Segment& segment = transformer.table().segment(ref);
    out.tensors.push_back({segment.name, segment.global_shape,
                           transformer.table().parameter(ref.parameter).trainable});
  }
  return out;
}

}  // namespace tandem::trainer
