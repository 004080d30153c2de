#include "common/model/tensor_parallel.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckEnough(int size, const char* what, int64_t count) {
  if (size <= count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor parallelism over ", size, " ranks: the model has ", count, " ", what,
                   ", and each rank needs at least one; use at most ", count, " ranks"));
}

}  // namespace

Range PartOf(int64_t n, TensorParallel parallel) {
  return {n * parallel.rank / parallel.size, n * (parallel.rank + 1) / parallel.size};
}

ModelPart PartOf(const ModelSpec& spec, TensorParallel parallel) {
  const int64_t heads_of_each = spec.num_heads / spec.num_kv_heads;
  ModelPart part;
  part.kv_heads = PartOf(spec.num_kv_heads, parallel);
  part.heads = {part.kv_heads.begin * heads_of_each, part.kv_heads.end * heads_of_each};
  part.intermediate = PartOf(spec.intermediate_size, parallel);
  part.vocabulary = PartOf(spec.vocab_size, parallel);
  return part;
}

absl::Status CheckTensorParallel(const ModelSpec& spec, int size) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 or more ranks, found ", size));
  }
  RETURN_IF_ERROR(CheckEnough(size, "key-value heads", spec.num_kv_heads));
  RETURN_IF_ERROR(CheckEnough(size, "inner units of a feed-forward layer", spec.intermediate_size));
  return CheckEnough(size, "vocabulary rows", spec.vocab_size);
}

absl::Status CheckSequenceParallel(const ModelSpec& spec, int tensor_ranks, int ranks) {
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence parallelism: expected 1 or more ranks, found ", ranks));
  }
  for (int r = 0; r < tensor_ranks; ++r) {
    const ModelPart part = PartOf(spec, {r, tensor_ranks});
    const int64_t heads = part.heads.size();
    const int64_t kv_heads = part.kv_heads.size();
    const bool fits =
        heads % ranks == 0 && kv_heads > 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0);
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence parallelism over ", ranks, " ranks: ", heads, " query heads and ", kv_heads,
        " key-value heads", tensor_ranks > 1 ? absl::StrCat(" of tensor rank ", r) : "",
        " cannot be split over them; use a size that divides the query heads, and that divides the "
        "key-value heads or is a multiple of them"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
