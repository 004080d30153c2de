#include "services/trainer/fsdp/shard_layout.h"

#include <algorithm>

#include "common/model/segment_box.h"
#include "common/sharding/shard_extent.h"

namespace tandem::trainer {

namespace {

// Vectors alone stay in float32.
model::Segment Scaled(model::Segment segment, int64_t elements) {
  segment.shape[0] *= elements;
  segment.global_shape[0] *= elements;
  segment.start[0] *= elements;
  segment.offset *= elements;
  segment.numel *= elements;
  return segment;
}

}  // namespace

ShardLayout::ShardLayout(const model::Transformer& transformer, const comm::MeshShape& mesh,
                         int64_t float32_elements)
    : mesh_(mesh), float32_elements_(float32_elements) {
  for (int e = 0; e < mesh.ep; ++e) {
    for (int t = 0; t < mesh.tp; ++t) {
      tables_.emplace_back(transformer.spec(), transformer.table().unit_limits(),
                           model::TensorParallel{t, mesh.tp}, model::ExpertParallel{e, mesh.ep});
    }
  }
}

int64_t ShardLayout::tensor_numel(size_t i) const {
  const model::Parameter& parameter = tables_[0].parameter(tables_[0].segments()[i].parameter);
  return model::NumElements(tensor(i).global_shape) * ElementsOf(parameter);
}

std::vector<ShardLayout::Run> ShardLayout::RunsOf(int rank, size_t tensor, int64_t first,
                                                  int64_t count) const {
  const int split = mesh_.ep * mesh_.tp;
  const model::ParameterTable& table = tables_[rank % split];
  const model::ParameterTable::SegmentRef ref = table.segments()[tensor];
  const model::Parameter& parameter = table.parameter(ref.parameter);
  const bool replicated = parameter.tensor_parallel.kind == model::Placement::Kind::kReplicate;
  std::vector<Run> runs;
  if (replicated && rank % mesh_.tp != 0) return runs;

  const int64_t elements = ElementsOf(parameter);
  const model::Segment segment =
      elements == 1 ? table.segment(ref) : Scaled(table.segment(ref), elements);
  const model::Unit& unit = table.units()[parameter.unit];
  const int num_shards = unit.of_experts ? mesh_.dp_shard : mesh_.num_shards();
  const int shard = unit.of_experts ? rank / split : rank / mesh_.tp;
  const int64_t owned = sharding::ExtentOf(unit.numel, num_shards).owned * elements;
  const int64_t shard_begin = shard * owned;
  // Elements of the box that lie in the rank's shard.
  const model::Range held = {std::max<int64_t>(0, shard_begin - segment.offset),
                             std::min(segment.numel, shard_begin + owned - segment.offset)};
  model::ForRuns(segment, held, {first, first + count}, [&](const model::BoxRun& run) {
    runs.push_back(
        {parameter.unit, segment.offset + run.local - shard_begin, run.logical, run.count});
    return absl::OkStatus();
  }).IgnoreError();
  return runs;
}

}  // namespace tandem::trainer
