// MatrixExchange: who computes on which whole matrix of a sharded unit, and which elements travel.
//
// Every matrix of the unit has one owner among the ranks that share it. One all-to-all brings each
// owner the pieces of its matrices; after it has computed, a second one takes the results back.
// Slice `r` of a rank's buffer is for rank r, `slice` elements, padded at its end:
//
//   sender s:  [ its pieces of rank 0's matrices | of rank 1's | ... ]       all-to-all
//   owner r:   [ rank 0's pieces of r's matrices | rank 1's    | ... ]  <---
//
// All ranks make the same plan from sizes alone. A matrix belongs to exactly one rank whatever their
// number, so what is computed on it does not depend on that number.
#ifndef TANDEM_COMMON_SHARDING_MATRIX_EXCHANGE_H_
#define TANDEM_COMMON_SHARDING_MATRIX_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/hidden_matrices.h"

namespace tandem::sharding {

struct MatrixExchange {
  // Consecutive elements of a matrix that one rank's shard holds.
  struct Piece {
    int matrix = 0;         // index
    int sender = 0;         // the rank whose shard holds them
    int64_t in_shard = 0;   // first element within the sender's shard
    int64_t in_matrix = 0;  // first element within the matrix
    int64_t in_slice = 0;   // first element within the slice from sender to owner
    int64_t count = 0;
  };
  std::vector<int> owners;    // of each matrix
  std::vector<Piece> pieces;  // by matrix, then by sender
  int64_t slice = 0;          // elements; 0 if the unit has no matrix
};

// `matrices` of one unit, of which each of `num_ranks` ranks holds `owned` elements
// (sharding::ExtentOf). `loads`, one number for each rank, is the work given out so far; the function
// adds the unit's. The largest matrices are given out first, each to the rank with the least work in
// the unit, and among these with the least in all.
MatrixExchange PlanMatrixExchange(absl::Span<const model::HiddenMatrix> matrices, int64_t owned,
                                  int num_ranks, std::vector<double>& loads);

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_MATRIX_EXCHANGE_H_
