// A product's right side, packed ahead: for weights that are used often and change rarely.
#ifndef TANDEM_COMMON_MODEL_KERNELS_PACKED_MATRIX_H_
#define TANDEM_COMMON_MODEL_KERNELS_PACKED_MATRIX_H_

#include <cstdint>

#include "common/model/kernels/element.h"
#include "common/model/kernels/scratch.h"

namespace tandem::model::kernels {

// Element (i, j) is data[i * row_stride + j * col_stride]; one of the strides is 1.
struct ConstMatrix {
  const void* data = nullptr;
  Element type = Element::kFloat32;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// A right-hand side [k, n] in the order in which the inner loop reads it, in its own element type:
// panels of some columns, row by row, or tile by tile if the CPU multiplies bfloat16
// (bfloat16_product.h). A product with it reads each weight once, sequentially.
class PackedMatrix {
 public:
  PackedMatrix(const ConstMatrix& b, int64_t k, int64_t n);
  // Allocates memory; contents are undefined until Repack().
  PackedMatrix(Element type, int64_t k, int64_t n);
  // Uses the given SizeBytes(..) bytes, which must outlive it and be aligned to 64 bytes. They must
  // be zeros if Write() fills them.
  PackedMatrix(Element type, int64_t k, int64_t n, void* memory);

  const void* data() const { return data_; }
  Element type() const { return type_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t size_bytes() const { return SizeBytes(type_, k_, n_); }
  static int64_t SizeBytes(Element type, int64_t k, int64_t n);

  // Columns of a panel; the last panel may have fewer.
  static int64_t panel_columns(Element type);
  int64_t panel_columns() const { return panel_columns(type_); }
  // Columns that Write() and Read() move at once; a divisor of panel_columns().
  static int64_t group_columns(Element type);
  int64_t group_columns() const { return group_columns(type_); }
  int64_t num_panels() const { return (n_ + panel_columns() - 1) / panel_columns(); }

  // Repacks panels [begin, end) in place from another matrix of the same sizes and type, on the
  // calling thread only: other cores keep computing with the weights that these replace.
  void Repack(const ConstMatrix& b, int64_t begin, int64_t end);

  // Writes or reads elements [first, first + count) of the transpose, [n, k] row-major, for weights
  // that have no other copy. Threads may write and read different elements concurrently. Whole
  // groups of columns are fast and use non-temporal stores; other elements are moved one by one.
  void Write(int64_t first, int64_t count, const void* plain);
  void Read(int64_t first, int64_t count, void* plain) const;

 private:
  // Moves these elements from `plain` or to it.
  template <bool kWrites, typename T>
  void Move(int64_t first, int64_t count, T* plain) const;
  template <bool kWrites, typename T>
  void MoveElements(int64_t first, int64_t count, T* plain) const;

  Element type_;
  int64_t k_;
  int64_t n_;
  Buffer owned_;
  void* data_;
};

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_PACKED_MATRIX_H_
