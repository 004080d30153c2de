// The metadata of a weight update as a rollout receives it: manifest, bucket table, and what is
// compared with the tensors that the rollout has.
#include "common/weights/broadcast_part.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/manifest.h"
#include "common/weights/receive_table.h"
#include "tandem/rollout/v1/weight_service.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::weights;  // NOLINT: the checks
  tandem::rollout::v1::BeginUpdateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto& manifest = request.manifest();
  if (!CheckManifest(manifest).ok()) return 0;
  (void)ManifestDigest(manifest);
  static const auto* own = [] {
    auto* tensors = new tandem::rollout::v1::BeginUpdateRequest;
    auto* tensor = tensors->mutable_manifest()->add_tensors();
    tensor->set_name("a");
    tensor->add_shape(4);
    tensor->set_dtype("float32");
    return tensors;
  }();
  (void)CompareManifests(own->manifest(), manifest);
  (void)CheckSameTensors(own->manifest(), manifest);
  const bool keeps = request.keeps_frozen();
  for (const auto& plan : {CheckTransferPlan(manifest, request.buckets(), keeps),
                           CheckReceiveTable(manifest, request.buckets(), keeps),
                           CheckBroadcastPart(manifest, request.buckets(), keeps)}) {
    if (!plan.ok()) continue;
    for (int bucket = 0; bucket < static_cast<int>(plan->buckets.size()); ++bucket) {
      (void)plan->BucketName(bucket);
      (void)SpansOf(plan->buckets[bucket], plan->tensor_bytes);
    }
  }
  return 0;
}
