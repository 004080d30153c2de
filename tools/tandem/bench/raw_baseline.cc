#include "tools/tandem/bench/raw_baseline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/shareable_memory.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"

namespace tandem::bench {
namespace {

absl::Status WaitAll(const comm::ProcessGroup& group,
                     std::vector<std::unique_ptr<comm::Work>>& works) {
  for (auto& work : works) RETURN_IF_ERROR(comm::WaitOnHost(group, *work));
  works.clear();
  return absl::OkStatus();
}

absl::Status Gather(std::vector<at::Tensor>& buckets, comm::ProcessGroup& group) {
  if (group.size() == 1) return absl::OkStatus();
  std::vector<std::unique_ptr<comm::Work>> works;
  for (at::Tensor& bucket : buckets) {
    const int64_t part = bucket.numel() / group.size();
    if (part == 0) continue;
    for (int rank = 1; rank < group.size(); ++rank) {
      if (group.rank() != 0 && group.rank() != rank) continue;
      at::Tensor slice = bucket.narrow(0, rank * part, part);
      auto work = group.rank() == 0 ? group.Receive(slice, rank, "raw gather")
                                    : group.Send(slice, 0, "raw gather");
      RETURN_IF_ERROR(work.status());
      works.push_back(*std::move(work));
    }
  }
  return WaitAll(group, works);
}

absl::Status Broadcast(std::vector<at::Tensor>& buckets, comm::ProcessGroup& group) {
  std::vector<std::unique_ptr<comm::Work>> works;
  for (at::Tensor& bucket : buckets) {
    ASSIGN_OR_RETURN(auto work, group.Broadcast(bucket, 0, "raw broadcast"));
    works.push_back(std::move(work));
  }
  return WaitAll(group, works);
}

absl::Status Chain(std::vector<at::Tensor>& buckets, comm::ProcessGroup& group, int trainer_ranks) {
  const int rank = group.rank();
  std::vector<std::unique_ptr<comm::Work>> arriving, leaving;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const int source = static_cast<int>(b) % trainer_ranks;
    if (rank >= trainer_ranks) {
      ASSIGN_OR_RETURN(auto work,
                       group.Receive(buckets[b], rank == trainer_ranks ? source : rank - 1, "raw"));
      arriving.push_back(std::move(work));
    } else if (rank == source) {
      ASSIGN_OR_RETURN(auto work, group.Send(buckets[b], trainer_ranks, "raw"));
      leaving.push_back(std::move(work));
    }
  }
  for (size_t b = 0; b < arriving.size(); ++b) {
    RETURN_IF_ERROR(arriving[b]->Wait());
    if (rank + 1 == group.size()) continue;
    ASSIGN_OR_RETURN(auto work, group.Send(buckets[b], rank + 1, "raw"));
    leaving.push_back(std::move(work));
  }
  return WaitAll(group, leaving);
}

// Buckets of a larger model share this memory in turn; it far exceeds the caches. Beside the
// services there may be no room for another full copy in each process.
constexpr int64_t kMostBytes = int64_t{512} << 20;

// The memory of the buckets that this rank has a part in, one after another; the others are
// undefined. With `shareable` it can be lent.
std::vector<at::Tensor> MakeBuckets(const weights::TransferPlan& plan, at::Device device,
                                    bool shareable, const std::function<bool(size_t bucket)>& has) {
  int64_t total = 0;
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    if (has(b)) total += plan.buckets[b].size_bytes();
  }
  total = std::min(total, std::max(kMostBytes, plan.largest_bucket_bytes));
  const at::Tensor all = shareable
                             ? comm::ShareableZeros(total, at::kByte)
                             : at::empty({total}, at::TensorOptions(at::kByte).device(device));
  all.fill_(1);
  std::vector<at::Tensor> buckets(plan.buckets.size());
  int64_t begin = 0;
  for (size_t b = 0; b < plan.buckets.size(); ++b) {
    if (!has(b)) continue;
    const int64_t size = plan.buckets[b].size_bytes();
    if (begin + size > total) begin = 0;
    buckets[b] = all.narrow(0, begin, size);
    begin += size;
  }
  return buckets;
}

double MedianOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

absl::StatusOr<double> MeasureRawTransfer(const weights::TransferPlan& plan,
                                          comm::ProcessGroup* trainer_group,
                                          comm::ProcessGroup* update_group, int repeats,
                                          at::Device device) {
  std::vector<at::Tensor> buckets =
      MakeBuckets(plan, device, /*shareable=*/false, [](size_t) { return true; });
  std::vector<double> seconds;
  for (int i = 0; i < std::max(1, repeats); ++i) {
    if (trainer_group != nullptr) {
      RETURN_IF_ERROR(trainer_group->Barrier("raw"));
    }
    if (update_group != nullptr) {
      RETURN_IF_ERROR(update_group->Barrier("raw"));
    }
    const auto start = std::chrono::steady_clock::now();
    if (trainer_group != nullptr) {
      RETURN_IF_ERROR(Gather(buckets, *trainer_group));
    }
    if (update_group != nullptr) {
      RETURN_IF_ERROR(Broadcast(buckets, *update_group));
      // The leader's clock stops when the last receiver has everything, as an update's does.
      RETURN_IF_ERROR(update_group->Barrier("raw"));
    }
    seconds.push_back(SecondsSince(start));
  }
  return MedianOf(std::move(seconds));
}

absl::StatusOr<double> MeasureRawChain(const weights::TransferPlan& plan, comm::ProcessGroup& group,
                                       comm::ProcessGroup& barrier, int trainer_ranks, int repeats,
                                       bool shareable) {
  const auto has = [&](size_t bucket) {
    const bool receives = group.rank() >= trainer_ranks;
    return receives || static_cast<int>(bucket) % trainer_ranks == group.rank();
  };
  std::vector<at::Tensor> buckets = MakeBuckets(plan, at::kCPU, shareable, has);
  std::vector<double> seconds;
  for (int i = 0; i < std::max(1, repeats); ++i) {
    RETURN_IF_ERROR(barrier.Barrier("raw"));
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(Chain(buckets, group, trainer_ranks));
    RETURN_IF_ERROR(barrier.Barrier("raw"));
    seconds.push_back(SecondsSince(start));
  }
  return MedianOf(std::move(seconds));
}

}  // namespace tandem::bench
