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

// Of those that have the key-value head, where there are more ranks than heads.
int FirstRankOf(int64_t kv_head, const ModelSpec& spec, int size) {
  return static_cast<int>((kv_head * size + spec.num_kv_heads - 1) / spec.num_kv_heads);
}

}  // namespace

Range PartOf(int64_t n, TensorParallel parallel) {
  return {n * parallel.rank / parallel.size, n * (parallel.rank + 1) / parallel.size};
}

ModelPart PartOf(const ModelSpec& spec, TensorParallel parallel) {
  const int64_t heads_of_each = spec.num_heads / spec.num_kv_heads;
  ModelPart part;
  if (parallel.size <= spec.num_kv_heads) {
    part.kv_heads = PartOf(spec.num_kv_heads, parallel);
    part.heads = {part.kv_heads.begin * heads_of_each, part.kv_heads.end * heads_of_each};
  } else {
    const int64_t head = parallel.rank * spec.num_kv_heads / parallel.size;
    const int first = FirstRankOf(head, spec, parallel.size);
    const int end = FirstRankOf(head + 1, spec, parallel.size);
    const Range share = PartOf(heads_of_each, {parallel.rank - first, end - first});
    part.kv_heads = {head, head + 1};
    part.heads = {head * heads_of_each + share.begin, head * heads_of_each + share.end};
  }
  part.intermediate = PartOf(spec.intermediate_size, parallel);
  part.vocabulary = PartOf(spec.vocab_size, parallel);
  return part;
}

int64_t MostKvHeads(const ModelSpec& spec, int size) {
  return (spec.num_kv_heads + size - 1) / size;
}

absl::Status CheckTensorParallel(const ModelSpec& spec, int size, KvHeadCopies copies) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 or more ranks, found ", size));
  }
  if (copies == KvHeadCopies::kNone) {
    RETURN_IF_ERROR(CheckEnough(size, "key-value heads", spec.num_kv_heads));
  } else {
    RETURN_IF_ERROR(CheckEnough(size, "query heads", spec.num_heads));
    // The ranks of one key-value head split the query heads that share it.
    const int64_t most = (size + spec.num_kv_heads - 1) / spec.num_kv_heads;
    const int64_t heads_of_each = spec.num_heads / spec.num_kv_heads;
    if (most > heads_of_each) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor parallelism over ", size, " ranks: ", most, " of them would share one of ",
          spec.num_kv_heads, " key-value heads, which ", heads_of_each,
          " query heads read, and each rank needs at least one; use at most ",
          heads_of_each * spec.num_kv_heads, " ranks"));
    }
  }
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
