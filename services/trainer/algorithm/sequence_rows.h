// Maps the rows of a micro-batch to sequences. All rows of a sequence are in one micro-batch, in
// order, so that sums over a sequence need no other rank.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_SEQUENCE_ROWS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_SEQUENCE_ROWS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

class SequenceRows {
 public:
  // sequence_index: int64 [num_rows], equal for the rows of a sequence, which are adjacent
  // (MicroBatch::sequence_index). `device` is that of the rows' values.
  SequenceRows(const at::Tensor& sequence_index, at::Device device);

  // [num_rows] -> the sum over each sequence's rows, [num_sequences].
  at::Tensor Sum(const at::Tensor& values) const;
  // The mean, likewise.
  at::Tensor Mean(const at::Tensor& values) const;
  // [num_sequences] -> the value of each row's sequence, [num_rows].
  at::Tensor Spread(const at::Tensor& of_sequences) const;

 private:
  at::Tensor row_;     // int64 [num_rows], the index of the sequence in the micro-batch
  at::Tensor counts_;  // float32 [num_sequences], rows of each
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_SEQUENCE_ROWS_H_
