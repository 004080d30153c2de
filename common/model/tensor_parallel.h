// How one model is split over the ranks of a tensor-parallel group (1909.08053): attention by whole
// groups of a key-value head and the query heads that share it, the feed-forward layer by its inner
// units, embedding and head by vocabulary rows. Parts need not be equal. Over more ranks than there
// are key-value heads, several have the same one, and the query heads that share it are split among
// them. And what can be split at all, over these ranks and over those that share sequences
// (sequence_parallel_attention.h).
#ifndef TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
#define TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/model_spec.h"

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
Range PartOf(int64_t n, TensorParallel parallel);

// What one rank computes of a model.
struct ModelPart {
  Range heads;
  Range kv_heads;
  Range intermediate;
  Range vocabulary;
};
ModelPart PartOf(const ModelSpec& spec, TensorParallel parallel);

// Whether several ranks may have the same key-value head: their gradients of it would have to be
// added up, so only where nothing is trained.
enum class KvHeadCopies { kNone, kAllowed };

// INVALID_ARGUMENT where a rank would be left without a head, an inner unit or a vocabulary row;
// names both numbers.
absl::Status CheckTensorParallel(const ModelSpec& spec, int size,
                                 KvHeadCopies copies = KvHeadCopies::kNone);

// The most key-value heads that one of the ranks has.
int64_t MostKvHeads(const ModelSpec& spec, int size);

// INVALID_ARGUMENT where the heads that a rank of `tensor_ranks` computes cannot be split over
// `ranks`: query heads must divide by them, and key-value heads divide by them or into them (a head
// is then held by several ranks). Names both numbers.
absl::Status CheckSequenceParallel(const ModelSpec& spec, int tensor_ranks, int ranks);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TENSOR_PARALLEL_H_
