#include "tools/tandem/gpu_check/device/lost_rank.h"

#include <ATen/ATen.h>

#include <chrono>
#include <csignal>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/comm/wait_on_host.h"
#include "common/device/device.h"
#include "common/status/status_macros.h"

namespace tandem::gpu_check {
namespace {

constexpr int kSumsBefore = 3;
constexpr int kMostSums = 1000;
constexpr absl::Duration kStart = absl::Seconds(40);

absl::Status SumOnce(comm::ProcessGroup& group, at::Tensor& tensor) {
  tensor.fill_(group.rank() + 1);
  ASSIGN_OR_RETURN(const std::unique_ptr<comm::Work> work,
                   group.AllReduce(tensor, comm::ReduceOp::kSum, "sum"));
  return comm::WaitOnHost(group, *work);
}

}  // namespace

absl::StatusOr<nlohmann::json> LoseOtherRank(const LostRankWork& work) {
  ASSIGN_OR_RETURN(const std::shared_ptr<device::Device> device,
                   device::Device::Create(work.device));
  device->MakeCurrent();
  std::unique_ptr<comm::StoreServer> server;
  if (work.rank == 0) {
    ASSIGN_OR_RETURN(server, comm::StoreServer::Start({.port = work.port}));
  }
  comm::GroupOptions options;
  options.name = "pair";
  options.family = "pair";
  options.rank = work.rank;
  options.size = 2;
  options.rendezvous = {.host = "127.0.0.1", .port = work.port, .prefix = "gpu-check"};
  options.timeout = kStart;
  ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group,
                   comm::CreateGroupOf(work.backend, options));
  at::Tensor tensor = at::zeros({1 << 20}, at::TensorOptions(at::kFloat).device(work.device));
  for (int sums = 0; sums < kMostSums; ++sums) {
    if (sums == kSumsBefore && work.rank == 1) std::raise(SIGKILL);
    if (sums == kSumsBefore) group->SetTimeout(work.timeout);
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = SumOnce(*group, tensor);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (!status.ok() && sums < kSumsBefore) return status;
    if (!status.ok()) {
      return nlohmann::json{
          {"sums", sums}, {"seconds_to_notice", spent.count()}, {"error", status.ToString()}};
    }
    const bool is_right = at::equal(tensor.cpu(), at::full({1 << 20}, 3.0f));
    if (!is_right) return absl::DataLossError(absl::StrCat("sum ", sums, " of 1 and 2 is not 3"));
  }
  return absl::InternalError("the other rank was to be killed, but every sum succeeded");
}

}  // namespace tandem::gpu_check
