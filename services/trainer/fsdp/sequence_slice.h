// The slice of a packed batch that one rank of a sequence-parallel group computes (Ulysses,
// 2309.14509): a contiguous run of tokens, equally many on every rank. If the tokens do not divide
// evenly, padding follows the batch, as a sequence of its own that predicts nothing.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SEQUENCE_SLICE_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SEQUENCE_SLICE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/comm/process_group.h"
#include "services/trainer/data/packed_batch.h"

namespace tandem::trainer {

struct SequenceSlice {
  at::Tensor token_ids;  // int64 [tokens of the slice]
  at::Tensor positions;  // int64 [tokens of the slice]; [3, tokens of the slice] with images
  std::vector<int64_t> cu_seqlens;  // of all tokens of the group, padding included
  int64_t num_rows = 0;             // of the batch
  // Rows [first_row, first_row + rows.numel()) of the batch are predicted from this slice.
  int64_t first_row = 0;
  at::Tensor rows;                    // int64, into the slice
  at::Tensor targets;                 // int64
  at::Tensor temperatures;            // float32
  at::Tensor soft_ids, soft_weights;  // [rows, K], or undefined; see PackedBatch
  // Undefined, or as in PackedBatch: of the slice's tokens, and those of the batch's images that they
  // show.
  at::Tensor image_rows;
  std::vector<int64_t> image_indices;
};

// The slice's part of values of the batch's tokens, [num_tokens, ...]; `padding` where the slice has
// padding.
at::Tensor TokensOfSlice(const at::Tensor& of_tokens, double padding, int rank, int size);

// The slice of rank `rank` of `size`; for size 1 the batch itself. The batch's rows ascend.
SequenceSlice SliceOf(const PackedBatch& batch, int rank, int size);

// Gathers the head's outputs for every row of the batch from the outputs `own` for each slice's
// rows: one or more tensors, one value per row. Every rank gets the same bits. Detached. Throws
// model::CollectiveError.
std::vector<at::Tensor> GatherRows(const SequenceSlice& slice, const std::vector<at::Tensor>& own,
                                   comm::ProcessGroup& group);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SEQUENCE_SLICE_H_
