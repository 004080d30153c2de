// Matrix products on the CPU, of float32 and bfloat16 matrices in float32 arithmetic.
//
//   Product p{.m = rows, .n = out, .k = in};
//   p.a = {x, Element::kBFloat16, in, 1};
//   p.b = {weight, Element::kBFloat16, 1, in};   // the transposed weight [out, in]
//   p.c = y; p.c_type = Element::kBFloat16; p.c_row_stride = out;
//   Multiply(p, parallel_for);
//
// An element of the result is one chain of fused multiply-adds in the order of k, so a row's bits
// do not depend on the number of rows, threads or blocks, nor on whether the right side was packed
// ahead.
#ifndef TANDEM_COMMON_MODEL_KERNELS_GEMM_H_
#define TANDEM_COMMON_MODEL_KERNELS_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "common/model/kernels/element.h"
#include "common/model/kernels/scratch.h"

namespace tandem::model::kernels {

// Calls body(begin, end) for ranges that cover [0, count), perhaps in several threads at once.
using RangeBody = std::function<void(int64_t begin, int64_t end)>;
using ParallelFor = std::function<void(int64_t count, const RangeBody& body)>;

// Element (i, j) is data[i * row_stride + j * col_stride]; one of the strides is 1.
struct ConstMatrix {
  const void* data = nullptr;
  Element type = Element::kFloat32;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// A right-hand side [k, n] in the order in which the inner loop reads it: panels of some columns,
// row by row.
// In its own element type; a product with it reads each weight once, in sequence.
class PackedMatrix {
 public:
  PackedMatrix(const ConstMatrix& b, int64_t k, int64_t n);
  // Its contents are undefined until Repack(). In memory of its own.
  PackedMatrix(Element type, int64_t k, int64_t n);
  // In SizeBytes(..) bytes that are given, which outlive it and are aligned to 64 bytes.
  PackedMatrix(Element type, int64_t k, int64_t n, void* memory);

  const void* data() const { return data_; }
  Element type() const { return type_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t size_bytes() const { return SizeBytes(type_, k_, n_); }
  static int64_t SizeBytes(Element type, int64_t k, int64_t n);

  // Columns of a panel; the last panel may have fewer.
  static int64_t panel_columns();
  int64_t num_panels() const { return (n_ + panel_columns() - 1) / panel_columns(); }

  // Packs panels [begin, end) of another matrix of the same sizes and type in their place, on the
  // thread that asks: the other cores belong to those who compute meanwhile with the weights that
  // these replace.
  void Repack(const ConstMatrix& b, int64_t begin, int64_t end);

 private:
  Element type_;
  int64_t k_;
  int64_t n_;
  Buffer owned_;
  void* data_;
};

// C = A B + bias, or C += A B.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  ConstMatrix a;                           // [m, k]
  ConstMatrix b;                           // [k, n]; unused where packed_b is set
  const PackedMatrix* packed_b = nullptr;  // [k, n]
  void* c = nullptr;                       // [m, n], row-major
  Element c_type = Element::kFloat32;
  int64_t c_row_stride = 0;
  const void* bias = nullptr;  // [n], of C's type
  bool accumulate = false;     // C is float32 and there is no bias
};

// At most num_threads tasks run at once, by way of parallel_for.
void Multiply(const Product& product, int num_threads, const ParallelFor& parallel_for);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_GEMM_H_
