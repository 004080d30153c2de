// Whether a model can be split over so many ranks: over a tensor-parallel group
// (tensor_parallel.h), and over ranks that share sequences (sequence_parallel_attention.h).
#ifndef TANDEM_COMMON_MODEL_PARALLEL_FIT_H_
#define TANDEM_COMMON_MODEL_PARALLEL_FIT_H_

#include "absl/status/status.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Whether several ranks may have the same key-value head: their gradients of it would have to be
// added up, so only where nothing is trained.
enum class KvHeadCopies { kNone, kAllowed };

// INVALID_ARGUMENT where a rank would be left without a head, an inner unit or a vocabulary row;
// names both numbers.
absl::Status CheckTensorParallel(const ModelSpec& spec, int size,
                                 KvHeadCopies copies = KvHeadCopies::kNone);

// INVALID_ARGUMENT where the heads that a rank of `tensor_ranks` computes cannot be split over
// `ranks`: query heads must divide by them, and key-value heads divide by them or into them (a head
// is then held by several ranks). Names both numbers.
absl::Status CheckSequenceParallel(const ModelSpec& spec, int tensor_ranks, int ranks);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARALLEL_FIT_H_
