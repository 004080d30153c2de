// The working memory of one task of a matrix product.
#ifndef TANDEM_COMMON_MODEL_KERNELS_PRODUCT_SCRATCH_H_
#define TANDEM_COMMON_MODEL_KERNELS_PRODUCT_SCRATCH_H_

namespace tandem::model::kernels {

// Sizes in floats.
struct ProductScratch {
  float* left;    // kLeftScratch of product-inl.h
  float* result;  // rows of the task times its columns, rounded up to whole panels
};

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_PRODUCT_SCRATCH_H_
