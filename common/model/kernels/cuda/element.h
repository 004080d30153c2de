// The element types of the CUDA kernels. Kernels compute in float32 whatever they load and store,
// and round once, to nearest even, when they store.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ELEMENT_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ELEMENT_H_

#include <cstdint>

namespace tandem::model::cuda {

enum class Element : uint8_t { kFloat32, kBFloat16 };

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ELEMENT_H_
