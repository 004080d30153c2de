// The simulated accelerator itself: operators have the CPU's results, the host cannot look, and
// work really is asynchronous.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/device/device.h"
#include "tests/simulator/accelerator.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Simulator : public ::testing::Test {
 protected:
  void SetUp() override { accelerator_.Restart({.seed = 3}); }
  SimulatedAccelerator& accelerator_ = SimulatedAccelerator::Get();
  const c10::Device place_ = accelerator_.device(0);
};

// Operators of every kind: in place, views, out=, lists, reductions, indices, new shapes.
std::vector<at::Tensor> Compute(const at::Tensor& x, const at::Tensor& ids) {
  std::vector<at::Tensor> out;
  at::Tensor y = at::matmul(x, x.t()).softmax(-1);
  out.push_back(y.clone());
  y.add_(1).mul_(2);
  y.narrow(0, 1, 2).zero_();
  out.push_back(y);
  out.push_back(at::cat({x, x.narrow(0, 0, 1)}));
  out.push_back(x.index_select(0, ids).sum({1}, /*keepdim=*/true));
  out.push_back(at::sum_out(*std::make_unique<at::Tensor>(at::empty({0}, x.options())), x, {0}));
  out.push_back(x.to(at::kBFloat16).to(at::kDouble).square());
  out.push_back(at::where(x > 0, x, -x).permute({1, 0}).contiguous());
  out.push_back(at::arange(5, x.options()).view({5, 1}).expand({5, 2}).contiguous());
  out.push_back(x.masked_select(x > 0).numel() > 0 ? x.max() : x.min());
  out.push_back(at::index_put(x, {ids}, at::full({}, 7.0, x.options())));
  out.push_back(at::logsumexp(x, {1}));
  return out;
}

TEST_F(Simulator, OperatorsHaveTheCpusBits) {
  const at::Tensor x = (at::arange(24) * 0.37).sin().view({4, 6}).to(at::kFloat);
  const at::Tensor ids = at::tensor({3, 0}, at::kLong);
  const std::vector<at::Tensor> expected = Compute(x, ids);
  const std::vector<at::Tensor> actual = Compute(x.to(place_), ids.to(place_));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].device(), place_);
    EXPECT_TRUE(at::equal(actual[i].cpu(), expected[i])) << "result " << i;
    EXPECT_EQ(actual[i].strides(), expected[i].strides()) << "result " << i;
  }
  EXPECT_THAT(accelerator_.TakeFaults(), IsEmpty());
}

TEST_F(Simulator, GradientsHaveTheCpusBits) {
  const auto gradient = [](at::Tensor x) {
    x.requires_grad_();
    const at::Tensor y = at::linear(x, x.detach().cos())
                             .log_softmax(-1)
                             .gather(1, at::ones({4, 1}, x.options().dtype(at::kLong)));
    return torch::autograd::grad({y.square().sum()}, {x})[0];
  };
  const at::Tensor x = (at::arange(24) * 0.37).sin().view({4, 6}).to(at::kFloat);
  const at::Tensor expected = gradient(x.clone());
  EXPECT_TRUE(at::equal(gradient(x.to(place_)).cpu(), expected));
  EXPECT_THAT(accelerator_.TakeFaults(), IsEmpty());
}

TEST_F(Simulator, WorkIsQueuedAndTheHostProceeds) {
  at::Tensor x = at::zeros({4}, place_);
  x.cpu();
  const c10::Stream stream = SimulatedAccelerator::CurrentStream(0);
  absl::Notification go;
  accelerator_.Enqueue(stream, {"block", {}, {}, [&] { go.WaitForNotification(); }});
  x.add_(1);
  EXPECT_FALSE(accelerator_.Query(accelerator_.Record(stream)));
  go.Notify();
  EXPECT_EQ(x.sum().item<float>(), 4);
}

TEST_F(Simulator, AFreedBlockIsGivenOutAgainOnItsStream) {
  at::Tensor first = at::empty({100}, place_);
  const void* const block = first.storage().data();
  first.reset();
  at::Tensor second = at::empty({90}, place_);
  EXPECT_EQ(second.storage().data(), block);
}

TEST_F(Simulator, AnErrorOnTheDeviceIsReportedAtTheNextSynchronization) {
  const at::Tensor x = at::zeros({4, 2}, place_);
  const at::Tensor beyond = at::full({1}, 9, x.options().dtype(at::kLong));
  const at::Tensor selected = x.index_select(0, beyond);
  EXPECT_THAT([&] { selected.cpu(); },
              ::testing::ThrowsMessage<c10::Error>(HasSubstr("index_select on simulated:0")));
}

using SimulatorDeathTest = Simulator;

TEST_F(SimulatorDeathTest, HostCodeCannotReadDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const at::Tensor x = at::zeros({4}, place_);
        volatile float value = x.const_data_ptr<float>()[1];
        (void)value;
      },
      "host code dereferenced .*, memory of simulated:0");
}

TEST_F(SimulatorDeathTest, HostCodeCannotReadWhatACopyStillWrites) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto device = device::Device::Create(place_).value();
        const at::Tensor host = device->HostBuffer(4096).value();
        host.copy_(at::zeros({4096}, at::TensorOptions(at::kByte).device(place_)),
                   /*non_blocking=*/true);
        volatile uint8_t value = host.const_data_ptr<uint8_t>()[1];
        (void)value;
      },
      "pinned memory that a queued copy still writes");
}

TEST_F(SimulatorDeathTest, HostCodeCannotOverwriteWhatACopyStillReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto device = device::Device::Create(place_).value();
        const at::Tensor host = device->HostBuffer(4096).value();
        const at::Tensor copy = device->Buffer(4096).value();
        copy.copy_(host, /*non_blocking=*/true);
        host.mutable_data_ptr<uint8_t>()[1] = 1;
      },
      "pinned memory that a queued copy still writes or reads");
}

TEST_F(Simulator, PinnedMemoryIsTheHostsAgainAfterASynchronization) {
  ASSERT_OK_AND_ASSIGN(const auto device, device::Device::Create(place_));
  ASSERT_OK_AND_ASSIGN(const at::Tensor host, device->HostBuffer(4096));
  host.copy_(at::ones({4096}, at::TensorOptions(at::kByte).device(place_)), /*non_blocking=*/true);
  device->Synchronize();
  EXPECT_EQ(host.const_data_ptr<uint8_t>()[1], 1);
  host.zero_();
  EXPECT_THAT(accelerator_.TakeFaults(), IsEmpty());
}

}  // namespace
}  // namespace tandem::testing
