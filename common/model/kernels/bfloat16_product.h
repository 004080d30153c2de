// Products of bfloat16 matrices where the CPU has instructions for them: tiles (AMX) or vectors
// (AVX512-BF16).
//
// An element of the result is one chain of the instruction's steps in the order of k, in a float32
// sum that is rounded once; so a row's bits do not depend on the number of rows, threads or blocks,
// nor on whether the right side was packed ahead. They are not the bits of float32 arithmetic,
// which adds one product after another, nor are those of tiles and of vectors each other's: a
// process has one of the three.
#ifndef TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_
#define TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_

#include <cstdint>

#include "common/model/kernels/gemm.h"

namespace tandem::model::kernels {

enum class BFloat16Unit {
  kNone,     // products are computed in float32 arithmetic
  kVectors,  // AVX512-BF16
  kTiles,    // AMX, where the system lets this process use it
};

// The best that this machine has.
BFloat16Unit CurrentBFloat16Unit();
// Tests look at each that a machine has. Not while anything is packed or computed.
void LimitBFloat16UnitForTest(BFloat16Unit most);

// Whether Multiply() computes it so: with a unit, and a bfloat16 right side. A float32 left side is
// taken as the sum of two bfloat16 numbers, which keeps 16 of its 24 bits.
bool BFloat16UnitTakes(const Product& product);
void MultiplyBFloat16(const Product& product, int num_threads, const ParallelFor& parallel_for);

// A right side packed ahead: panels of 32 columns, each a sequence of pairs of tiles.
constexpr int64_t kBFloat16PanelColumns = 32;
// Columns of a tile.
constexpr int64_t kBFloat16GroupColumns = 16;
int64_t BFloat16PanelBytes(int64_t k);
// Panels [begin, end) of a bfloat16 matrix [k, n]; panel p is written at
// to + p BFloat16PanelBytes(k).
void PackBFloat16Panels(const ConstMatrix& b, int64_t k, int64_t n, int64_t begin, int64_t end,
                        void* to);

// Groups [begin, end) of columns, which lie one after another at `from`, k elements each, into
// their places of the panels at `to`, past the caches.
void PackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to);
// Back, out of the panels at `from`.
void UnpackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_
