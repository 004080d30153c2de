// A CUDA device's copies, casts and digests, against the CPU's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/weights/device_ops.h"
#include "tests/support/cuda_device.h"
#include "tests/support/status_matchers.h"

namespace tandem::weights {
namespace {

int64_t Below(int64_t end, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

const std::byte* BytesOf(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}
std::byte* MutableBytesOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

class CudaOps : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_SKIP_WITHOUT_CUDA();
    ASSERT_OK_AND_ASSIGN(ops_, CreateDeviceOps(at::Device(at::kCUDA, 0)));
    host_ = at::randint(0, 256, {int64_t{9} << 20}, at::kByte);
    there_ = host_.to(ops_->device());
  }

  std::mt19937_64 random_{1};
  std::unique_ptr<DeviceOps> ops_;
  at::Tensor host_, there_;  // the same bytes
};

TEST_F(CudaOps, DigestsAreTheCpusForManyRuns) {
  const auto entered = ops_->Enter();
  std::vector<DigestRun> here, there;
  for (int i = 0; i < 300; ++i) {  // several launches
    DigestRun run;
    run.row_bytes = 2 * (1 + Below(i % 7 == 0 ? 400000 : 3000, random_));
    run.rows = 1 + Below(9, random_);
    run.stride = run.row_bytes + 2 * Below(5000, random_);
    run.offset = 2 * Below(1 << 20, random_);
    run.slot = static_cast<int32_t>(Below(5, random_));
    const int64_t at = 2 * Below((host_.numel() - run.row_bytes * run.rows) / 2, random_);
    run.bytes = BytesOf(host_) + at;
    here.push_back(run);
    run.bytes = BytesOf(there_) + at;
    there.push_back(run);
  }
  std::vector<DigestSum> expected(5), found(5);
  ASSERT_OK(CpuOps().Digest(here, absl::MakeSpan(expected)));
  ASSERT_OK(ops_->Digest(there, absl::MakeSpan(found)));
  EXPECT_EQ(found, expected);
}

TEST_F(CudaOps, CopiesRunsOfAnyAlignment) {
  const auto entered = ops_->Enter();
  at::Tensor expected = at::zeros({4 << 20}, at::kByte);
  const at::Tensor found = expected.to(ops_->device());
  std::vector<CopyRun> here, there;
  for (int64_t to = 0; to < (3 << 20);) {
    CopyRun run;
    run.size = 1 + Below(5000, random_);
    run.repeat = 1 + Below(4, random_);
    run.from_stride = run.size + Below(100, random_);
    run.to_stride = run.size + Below(100, random_);
    const int64_t from = Below(host_.numel() - run.from_stride * run.repeat, random_);
    run.from = BytesOf(host_) + from;
    run.to = MutableBytesOf(expected) + to;
    here.push_back(run);
    run.from = BytesOf(there_) + from;
    run.to = MutableBytesOf(found) + to;
    there.push_back(run);
    to += run.to_stride * run.repeat;
  }
  ASSERT_OK(CpuOps().Copy(here));
  ASSERT_OK(ops_->Copy(there));
  ASSERT_OK(ops_->Synchronize());
  EXPECT_TRUE(at::equal(found.cpu(), expected));
}

TEST_F(CudaOps, CastsAsTheCpuDoes) {
  const auto entered = ops_->Enter();
  const at::Tensor master = at::randn({1 << 20}) * 1e3;
  const at::Tensor master_there = master.to(ops_->device());
  for (const WireElement element :
       {WireElement::kFloat32, WireElement::kBfloat16, WireElement::kFloat16}) {
    CastRun run;
    run.length = 4099;
    run.repeat = 100;
    run.from_stride = 8192;
    ASSERT_OK_AND_ASSIGN(const at::Tensor expected,
                         CpuOps().Buffer(run.length * run.repeat * WireElementBytes(element)));
    ASSERT_OK_AND_ASSIGN(const at::Tensor found, ops_->Buffer(expected.numel()));
    run.from = master.const_data_ptr<float>() + 3;
    run.to = MutableBytesOf(expected);
    ASSERT_OK(CpuOps().Cast(element, {run}));
    run.from = master_there.const_data_ptr<float>() + 3;
    run.to = MutableBytesOf(found);
    ASSERT_OK(ops_->Cast(element, {run}));
    ASSERT_OK(ops_->Synchronize());
    EXPECT_TRUE(at::equal(found.cpu(), expected));
  }
}

}  // namespace
}  // namespace tandem::weights
