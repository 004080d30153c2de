// How one model is split over the ranks of a tensor-parallel group (1909.08053): each layer by its
// own parts (layers/), embedding and head by vocabulary rows. Parts need not be equal.
#ifndef TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
#define TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_

#include <cstdint>

namespace tandem::model {

// One rank of the `size` ranks that hold a model together; 1: nothing is split.
struct TensorParallel {
  int rank = 0;
  int size = 1;
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The rank's part of [0, n): [rank n / size, (rank + 1) n / size), rounded down.
inline Range PartOf(int64_t n, TensorParallel parallel) {
  return {n * parallel.rank / parallel.size, n * (parallel.rank + 1) / parallel.size};
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
