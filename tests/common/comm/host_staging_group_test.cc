// Tensors of a simulated device (tests/simulator) that travel through groups in host memory.
#include "common/comm/host_staging_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "common/comm/link_facts.h"
#include "common/comm/wait_on_host.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/simulator/accelerator.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::SimulatedAccelerator;
using ::tandem::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostStagingGroup : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { SimulatedAccelerator::Get().Restart({.seed = 5}); }
  void TearDown() override { EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty()); }

  static c10::Device DeviceOf(int rank) { return SimulatedAccelerator::Get().device(rank); }

  // Runs `body` on two ranks; those below `num_staged` have their tensors on a device.
  static std::vector<absl::Status> Run(
      int num_staged,
      const std::function<absl::Status(ProcessGroup&, const at::TensorOptions&)>& body) {
    static Backend base = kGloo;
    base = GetParam();
    static int staged = 0;
    staged = num_staged;
    const Backend wrapped = {
        "Staged", [](const GroupOptions& options) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
          ASSIGN_OR_RETURN(auto group, base.create(options));
          if (options.rank >= staged) return group;
          return CarryTensorsOf(DeviceOf(options.rank), "messages", std::move(group));
        }};
    return RunRanks(2, wrapped, [&](ProcessGroup& group) -> absl::Status {
      const c10::Device device = group.rank() < staged ? DeviceOf(group.rank()) : c10::kCPU;
      return body(group, at::TensorOptions(at::kFloat).device(device));
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, HostStagingGroup,
                         ::testing::Values(kGloo, kSharedMessages, kSocket), BackendName);

// The device still computes what it sends, and what is received is computed with at once.
TEST_P(HostStagingGroup, CarriesMessagesToAndFromADevice) {
  for (const int num_staged : {1, 2}) {
    const auto results =
        Run(num_staged, [](ProcessGroup& group, const at::TensorOptions& on) -> absl::Status {
          for (int round = 0; round < 3; ++round) {
            const at::Tensor mine = at::full({1000}, 1.0 + group.rank() + 10 * round, on).mul_(2);
            const at::Tensor theirs = at::zeros({1000}, on);
            ASSIGN_OR_RETURN(auto sent, group.Send(mine, 1 - group.rank(), "there"));
            ASSIGN_OR_RETURN(auto received, group.Receive(theirs, 1 - group.rank(), "back"));
            RETURN_IF_ERROR(WaitOnHost(group, *received));
            RETURN_IF_ERROR(WaitOnHost(group, *sent));
            const at::Tensor expected =
                at::full({1000}, 2.0 * (2.0 - group.rank() + 10 * round), at::kFloat);
            if (!at::equal(theirs.add(0).cpu(), expected))
              return absl::InternalError("other values");
          }
          return absl::OkStatus();
        });
    EXPECT_THAT(results, Each(IsOk())) << num_staged;
  }
}

TEST_P(HostStagingGroup, PassesHostTensorsOn) {
  EXPECT_THAT(Run(2,
                  [](ProcessGroup& group, const at::TensorOptions&) -> absl::Status {
                    at::Tensor word = at::full({3}, group.rank(), at::kLong);
                    auto work = group.rank() == 0 ? group.Send(word, 1, "word")
                                                  : group.Receive(word, 0, "word");
                    RETURN_IF_ERROR(work.status());
                    RETURN_IF_ERROR(WaitOnHost(group, **work));
                    return word.eq(0).all().item<bool>() ? absl::OkStatus()
                                                         : absl::InternalError("other values");
                  }),
              Each(IsOk()));
}

TEST_P(HostStagingGroup, AReductionOnADeviceIsRefused) {
  EXPECT_THAT(Run(2,
                  [](ProcessGroup& group, const at::TensorOptions& on) -> absl::Status {
                    return group.AllReduce(at::ones({2}, on), ReduceOp::kSum, "sum").status();
                  }),
              Each(StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("host memory only"))));
}

TEST(HostStaging, BroadcastsFromADevice) {
  SimulatedAccelerator::Get().Restart({.seed = 6});
  const Backend staged = {
      "Staged", [](const GroupOptions& options) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
        ASSIGN_OR_RETURN(auto group, CreateGlooGroup(options));
        if (options.rank == 2) return group;
        return CarryTensorsOf(SimulatedAccelerator::Get().device(options.rank), "gloo",
                              std::move(group));
      }};
  EXPECT_THAT(
      RunRanks(
          3, staged,
          [](ProcessGroup& group) -> absl::Status {
            const c10::Device device = group.rank() == 2
                                           ? c10::Device(c10::kCPU)
                                           : SimulatedAccelerator::Get().device(group.rank());
            const at::Tensor bytes =
                at::full({77}, group.rank(), at::TensorOptions(at::kFloat).device(device)).add_(1);
            ASSIGN_OR_RETURN(auto work, group.Broadcast(bytes, 0, "bucket"));
            RETURN_IF_ERROR(WaitOnHost(group, *work));
            const bool same = at::equal(bytes.cpu(), at::ones({77}));
            return same ? absl::OkStatus() : absl::InternalError("other values");
          }),
      Each(IsOk()));
  EXPECT_THAT(SimulatedAccelerator::Get().TakeFaults(), IsEmpty());
}

TEST(HostStaging, ABackendForGpusIsRefusedOnTheCpu) {
  ASSERT_OK_AND_ASSIGN(auto group, CreateGlooGroup(LocalOptions(1, 0, 1)));
  EXPECT_THAT(CarryTensorsOf(c10::kCPU, "nccl", std::move(group)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host memory")));
}

}  // namespace
}  // namespace tandem::comm
