// Products of bfloat16 matrices on CPUs with instructions for them: tiles (AMX) or vectors
// (AVX512-BF16).
//
// An element of the result is one chain of the instruction's steps in the order of k, in a float32
// sum that is rounded once. So a row's bits do not depend on the number of rows, threads or blocks,
// nor on whether the right side was packed ahead. They differ from the bits of float32 arithmetic,
// which adds one product after another, and tiles and vectors also differ from each other: a
// process uses one of the three.
#ifndef TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_
#define TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_

#include <cstdint>

#include "common/model/kernels/gemm.h"

namespace tandem::model::kernels {

enum class BFloat16Unit {
  kNone,     // products are computed in float32 arithmetic
  kVectors,  // AVX512-BF16
  kTiles,    // AMX, if the system permits it
};

// The best unit that this machine has.
BFloat16Unit CurrentBFloat16Unit();
// Lets tests cover each unit of a machine. Do not call while anything is packed or computed.
void LimitBFloat16UnitForTest(BFloat16Unit most);

// Whether Multiply() uses the unit for this product: if there is a unit and the right side is
// bfloat16. A float32 left side is treated as the sum of two bfloat16 numbers, which keeps 16 of
// its 24 bits.
bool BFloat16UnitTakes(const Product& product);
void MultiplyBFloat16(const Product& product, int num_threads, const ParallelFor& parallel_for);

// Columns of a panel of a packed right side; a panel is a sequence of pairs of tiles.
constexpr int64_t kBFloat16PanelColumns = 32;
// Columns of a tile.
constexpr int64_t kBFloat16GroupColumns = 16;
int64_t BFloat16PanelBytes(int64_t k);
// Packs panels [begin, end) of a bfloat16 matrix [k, n]; writes panel p at to + p
// BFloat16PanelBytes(k).
void PackBFloat16Panels(const ConstMatrix& b, int64_t k, int64_t n, int64_t begin, int64_t end,
                        void* to);

// Packs groups [begin, end) of columns, stored one after another at `from`, k elements each, into
// the panels at `to`, with non-temporal stores.
void PackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to);
// Inverse of PackBFloat16Groups(): unpacks from the panels at `from`.
void UnpackBFloat16Groups(const void* from, int64_t k, int64_t begin, int64_t end, void* to);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_PRODUCT_H_
