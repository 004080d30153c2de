// What tests with the label cuda begin with: without a device they are skipped.
#ifndef TANDEM_TESTS_SUPPORT_CUDA_DEVICE_H_
#define TANDEM_TESTS_SUPPORT_CUDA_DEVICE_H_

#include <ATen/Context.h>
#include <gtest/gtest.h>

#define TANDEM_SKIP_WITHOUT_CUDA() \
  if (!at::hasCUDA())              \
  GTEST_SKIP() << "no CUDA device: needs one, and a build with the preset cuda (tools/build cuda)"

#endif  // TANDEM_TESTS_SUPPORT_CUDA_DEVICE_H_
