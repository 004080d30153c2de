#include "tools/tandem/driver/encoding_metrics.h"

#include <utility>

namespace tandem::driver {

EncodingMetrics::Counts EncodingMetrics::CountsOf(const rollout::v1::GetServerInfoResponse& info) {
  return {info.num_encoded_images(), info.num_encoded_patches(), info.image_encode_seconds()};
}

void EncodingMetrics::Begin(const Infos& infos) {
  for (const rollout::v1::GetServerInfoResponse& info : infos) {
    last_[info.instance_id()] = CountsOf(info);
  }
}

void EncodingMetrics::Add(const Infos& infos, Metrics& metrics) {
  Counts sum;
  for (const rollout::v1::GetServerInfoResponse& info : infos) {
    const Counts now = CountsOf(info);
    const Counts before = std::exchange(last_[info.instance_id()], now);
    sum.num_images += now.num_images - before.num_images;
    sum.num_patches += now.num_patches - before.num_patches;
    sum.seconds += now.seconds - before.seconds;
  }
  metrics["rollout/encoded_images"] = static_cast<double>(sum.num_images);
  metrics["rollout/encoded_image_patches"] = static_cast<double>(sum.num_patches);
  metrics["rollout/encode_images_s"] = sum.seconds;
}

}  // namespace tandem::driver
