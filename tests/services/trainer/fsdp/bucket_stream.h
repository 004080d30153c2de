// What the leader's buckets of a weight update hold: the tensors of the whole model, end to end.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_FSDP_BUCKET_STREAM_H_
#define TANDEM_TESTS_SERVICES_TRAINER_FSDP_BUCKET_STREAM_H_

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/manifest.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"

namespace tandem::trainer {

// From the model on one process.
inline std::string WholeStream(const model::ModelSpec& spec, uint64_t seed) {
  const WholeModel whole(spec, seed);
  std::string stream;
  for (const model::ParameterTable::SegmentRef ref : whole.transformer().table().segments()) {
    const model::Segment& segment = whole.transformer().table().segment(ref);
    const at::Tensor tensor = whole.parameters()[ref.parameter]
                                  .detach()
                                  .narrow(0, segment.row, segment.shape[0])
                                  .contiguous();
    stream.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return stream;
}

// From the ranks' shards; empty on ranks other than the leader. Collective among all ranks.
inline absl::StatusOr<std::string> BucketStream(ShardedModel& model, const model::ModelSpec& spec,
                                                const comm::MeshShape& shape,
                                                const comm::DeviceMesh& mesh,
                                                int64_t bucket_bytes) {
  ASSIGN_OR_RETURN(auto manifest,
                   weights::MakeManifest(model::ParameterTable(spec), io::DType::kF32));
  ASSIGN_OR_RETURN(const auto plan, weights::MakeTransferPlan(std::move(manifest), bucket_bytes));
  RankShards shards;
  shards.ranks = mesh.size();
  shards.rank = mesh.rank();
  shards.units = model.shards();
  shards.layout = std::make_shared<ShardLayout>(model.transformer(), shape);
  ASSIGN_OR_RETURN(auto source, ShardGatherSource::Create(plan, std::move(shards), &mesh.world()));
  std::string stream;
  if (mesh.rank() > 0) {
    RETURN_IF_ERROR(source->Follow());
    return stream;
  }
  weights::PhaseTimes times;
  for (int b = 0; b < static_cast<int>(plan.buckets.size()); ++b) {
    const at::Tensor buffer = at::zeros({plan.buckets[b].size_bytes()}, at::kByte);
    RETURN_IF_ERROR(source->Start(b, buffer, times));
    RETURN_IF_ERROR(source->Finish(b));
    stream.append(static_cast<const char*>(buffer.const_data_ptr()), buffer.nbytes());
  }
  RETURN_IF_ERROR(source->End());
  return stream;
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_FSDP_BUCKET_STREAM_H_
