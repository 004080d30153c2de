// A model's broadcast between processes that share GPUs, or one.
#include "tests/support/cuda_device.h"
#include "tests/support/device_transfer.h"

namespace tandem {
namespace {

class CudaTransfer : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaTransfer, EveryRankHasTheSendersDigests) {
  TANDEM_SKIP_WITHOUT_CUDA();
  for (const char* dtype : {"float32", "bfloat16"}) {
    testing::ExpectTransfer("cuda", GetParam(), dtype);
  }
}

// cuda_ipc is NCCL where there are several GPUs.
INSTANTIATE_TEST_SUITE_P(Backends, CudaTransfer, ::testing::Values("nccl", "cuda_ipc"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tandem
