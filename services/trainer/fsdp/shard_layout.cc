#include "services/trainer/fsdp/shard_layout.h"

#include <algorithm>

#include "common/model/segment_box.h"
#include "common/sharding/shard_extent.h"

namespace tandem::trainer {

ShardLayout::ShardLayout(const model::Transformer& transformer, const comm::MeshShape& mesh)
    : num_shards_(mesh.dp_shard) {
  for (int r = 0; r < mesh.tp; ++r) {
    tables_.emplace_back(transformer.spec(), transformer.table().unit_limits(),
                         model::TensorParallel{r, mesh.tp});
  }
}

int64_t ShardLayout::tensor_numel(size_t i) const {
  return model::NumElements(tensor(i).global_shape);
}

std::vector<ShardLayout::Run> ShardLayout::RunsOf(int rank, size_t tensor, int64_t first,
                                                  int64_t count) const {
  const int tensor_ranks = static_cast<int>(tables_.size());
  const model::ParameterTable& table = tables_[rank % tensor_ranks];
  const model::ParameterTable::SegmentRef ref = table.segments()[tensor];
  const model::Parameter& parameter = table.parameter(ref.parameter);
  const bool replicated = parameter.tensor_parallel.kind == model::Placement::Kind::kReplicate;
  std::vector<Run> runs;
  if (replicated && rank % tensor_ranks != 0) return runs;

  const model::Segment& segment = table.segment(ref);
  const int64_t owned = sharding::ExtentOf(table.units()[parameter.unit].numel, num_shards_).owned;
  const int64_t shard_begin = rank / tensor_ranks * owned;
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
