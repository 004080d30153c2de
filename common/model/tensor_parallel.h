// How a tensor-parallel group splits one model (1909.08053): each layer by its own parts (layers/),
// embedding and head by vocabulary rows. Parts may have unequal sizes.
#ifndef TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
#define TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_

#include <cstdint>

namespace tandem::model {

// One of the `size` ranks that together hold a model; size 1: not split.
struct TensorParallel {
  int rank = 0;
  int size = 1;
};

// One of the `size` ranks that split the experts of each layer: it has whole ones, consecutive, as
// many as every other rank. size 1: not split.
struct ExpertParallel {
  int rank = 0;
  int size = 1;
  // They are the tensor-parallel ranks, which otherwise have a part of every expert. Otherwise each of
  // these ranks is one of a tensor-parallel group of its own, which splits the rank's experts.
  bool of_tensor_ranks = false;
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Returns the rank's part of [0, n): [rank n / size, (rank + 1) n / size), rounded down.
inline Range PartOf(int64_t n, TensorParallel parallel) {
  return {n * parallel.rank / parallel.size, n * (parallel.rank + 1) / parallel.size};
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
