// Launches of the kernels for weights on a CUDA device. Each call queues on `stream` and returns;
// the current device is the stream's. Lists of any length; what they point to is read and written
// until the stream has got there, the lists themselves only during the call.
#ifndef TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_
#define TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/weights/weight_runs.h"

namespace tandem::weights {

cudaError_t LaunchCopy(const CopyRun* runs, size_t count, cudaStream_t stream);

cudaError_t LaunchCast(WireElement element, const CastRun* runs, size_t count, cudaStream_t stream);

// Adds each run's sum to lanes[2 * slot] and lanes[2 * slot + 1], which are on the device.
cudaError_t LaunchDigest(const DigestRun* runs, size_t count, uint64_t* lanes, cudaStream_t stream);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_
