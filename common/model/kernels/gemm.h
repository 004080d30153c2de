// Matrix products on the CPU, of float32 and bfloat16 matrices in float32 arithmetic.
//
//   Product p{.m = rows, .n = out, .k = in};
//   p.a = {x, Element::kBFloat16, in, 1};
//   p.b = {weight, Element::kBFloat16, 1, in};   // the transposed weight [out, in]
//   p.c = y;
//   p.c_type = Element::kBFloat16;
//   p.c_row_stride = out;
//   Multiply(p, num_threads, parallel_for);
//
// An element of the result is one chain of fused multiply-adds in the order of k, so a row's bits
// do not depend on the number of rows, threads or blocks, nor on whether the right side was packed
// ahead.
#ifndef TANDEM_COMMON_MODEL_KERNELS_GEMM_H_
#define TANDEM_COMMON_MODEL_KERNELS_GEMM_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "common/model/kernels/element.h"
#include "common/model/kernels/packed_matrix.h"

namespace tandem::model::kernels {

// A loop's body. It does not own the callable, which must outlive the loop.
using RangeBody = absl::FunctionRef<void(int64_t begin, int64_t end)>;
// Calls body(begin, end) for ranges that cover [0, count), possibly in several threads at once.
using ParallelFor = std::function<void(int64_t count, const RangeBody& body)>;

// C = A B + bias, or C += A B.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  ConstMatrix a;                           // [m, k]
  ConstMatrix b;                           // [k, n]; unused if packed_b is set
  const PackedMatrix* packed_b = nullptr;  // [k, n]
  void* c = nullptr;                       // [m, n], row-major
  Element c_type = Element::kFloat32;
  int64_t c_row_stride = 0;
  const void* bias = nullptr;  // [n], of C's type
  bool accumulate = false;     // requires float32 C and no bias
};

// Runs at most num_threads tasks at once, with parallel_for.
void Multiply(const Product& product, int num_threads, const ParallelFor& parallel_for);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_GEMM_H_
