// Launches the weight kernels on a CUDA device. Each call queues on `stream` and returns; the
// current device must be the stream's. Lists may have any length. The memory they point to must
// stay valid until the stream has executed the work, the lists only during the call.
#ifndef TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_
#define TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/weights/weight_runs.h"

namespace tandem::weights {

cudaError_t LaunchCopy(const CopyRun* runs, size_t count, cudaStream_t stream);

cudaError_t LaunchCast(WireElement element, const CastRun* runs, size_t count, cudaStream_t stream);

// Adds each run's sum to lanes[2 * slot] and lanes[2 * slot + 1] in device memory.
cudaError_t LaunchDigest(const DigestRun* runs, size_t count, uint64_t* lanes, cudaStream_t stream);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_WEIGHT_KERNELS_H_
