// What the vision tower did in a training step, on all ranks.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_IMAGE_METRICS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_IMAGE_METRICS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "services/trainer/algorithm/update_statistics.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

// Adds perf/encoded_images and perf/encoded_image_patches, the sums over the ranks, and
// timing_s/encode_images, the mean over them. `encoded`: of this rank. Collective; `device` is the one on
// which the world moves tensors. Errors are those of the collective.
absl::Status AddImageMetrics(const EncodedImages& encoded, comm::ProcessGroup& world,
                             c10::Device device, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_IMAGE_METRICS_H_
