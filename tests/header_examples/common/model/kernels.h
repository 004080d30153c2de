// What the usage examples in common/model/kernels leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_KERNELS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_KERNELS_H_

namespace tandem::model::kernels::gemm_example {
extern int64_t rows, out, in;
extern const void *x, *weight;
extern void* y;
extern int num_threads;
extern ParallelFor parallel_for;
}  // namespace tandem::model::kernels::gemm_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_MODEL_KERNELS_H_
