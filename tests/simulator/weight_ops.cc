#include "tests/simulator/weight_ops.h"

#include <ATen/ops/zeros.h>

#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tests/simulator/accelerator.h"
#include "tests/simulator/memory.h"

namespace tandem::testing {
namespace {

using weights::CastRun;
using weights::CopyRun;
using weights::DigestRun;
using weights::DigestSum;

template <typename T>
T* OnStream(T* address) {
  return reinterpret_cast<T*>(SimulatedMemory::Get().OnStream(address));
}

// Bytes from the first run's begin to the last one's end.
size_t Extent(int64_t size, int64_t repeat, int64_t stride) {
  return static_cast<size_t>(repeat == 1 ? size : (repeat - 1) * stride + size);
}

absl::Status Enqueue(const weights::DeviceOps& ops, SimulatedAccelerator::Operation operation) {
  SimulatedAccelerator::Get().Enqueue(SimulatedAccelerator::CurrentStream(ops.device().index()),
                                      std::move(operation));
  return absl::OkStatus();
}

}  // namespace

absl::Status SimulatedWeightOps::Copy(absl::Span<const CopyRun> runs) {
  SimulatedAccelerator::Operation operation;
  operation.what = "copy of weights";
  std::vector<CopyRun> there(runs.begin(), runs.end());
  for (CopyRun& run : there) {
    if (run.size == 0) continue;
    operation.reads.push_back({run.from, Extent(run.size, run.repeat, run.from_stride)});
    operation.writes.push_back({run.to, Extent(run.size, run.repeat, run.to_stride)});
    run.from = OnStream(run.from);
    run.to = OnStream(run.to);
  }
  operation.run = [grid = grid_, there = std::move(there)] { grid.Copy(there); };
  return Enqueue(*this, std::move(operation));
}

absl::Status SimulatedWeightOps::Cast(weights::WireElement element,
                                      absl::Span<const CastRun> runs) {
  SimulatedAccelerator::Operation operation;
  operation.what = "cast of weights";
  std::vector<CastRun> there(runs.begin(), runs.end());
  for (CastRun& run : there) {
    if (run.length == 0) continue;
    const auto stride = run.from_stride * static_cast<int64_t>(sizeof(float));
    operation.reads.push_back(
        {run.from, Extent(run.length * static_cast<int64_t>(sizeof(float)), run.repeat, stride)});
    operation.writes.push_back(
        {run.to, static_cast<size_t>(run.length * run.repeat * WireElementBytes(element))});
    run.from = OnStream(run.from);
    run.to = OnStream(run.to);
  }
  operation.run = [grid = grid_, element, there = std::move(there)] { grid.Cast(element, there); };
  return Enqueue(*this, std::move(operation));
}

absl::Status SimulatedWeightOps::Digest(absl::Span<const DigestRun> runs,
                                        absl::Span<DigestSum> sums) {
  try {
    num_digests += static_cast<int>(runs.size());
    const at::Tensor found = at::zeros({2 * static_cast<int64_t>(sums.size())},
                                       at::TensorOptions(at::kLong).device(device()));
    SimulatedAccelerator::Operation operation;
    operation.what = "digest of weights";
    std::vector<DigestRun> there;
    for (const DigestRun& run : runs) {
      const auto bytes = static_cast<size_t>(run.row_bytes * run.rows);
      if (bytes == 0) continue;
      operation.reads.push_back({run.bytes, bytes});
      there.push_back(run);
      there.back().bytes = OnStream(run.bytes);
    }
    const void* const lanes = found.storage().data();
    operation.writes.push_back({lanes, found.nbytes()});
    auto* const lanes_there = reinterpret_cast<DigestSum*>(SimulatedMemory::Get().OnStream(lanes));
    operation.run = [grid = grid_, there = std::move(there), lanes_there, count = sums.size()] {
      grid.Digest(there, {lanes_there, count});
    };
    RETURN_IF_ERROR(Enqueue(*this, std::move(operation)));
    const at::Tensor host = found.cpu();  // waits
    const auto* const sum = host.const_data_ptr<int64_t>();
    for (size_t slot = 0; slot < sums.size(); ++slot) {
      for (size_t lane = 0; lane < 2; ++lane) {
        sums[slot].lanes[lane] += static_cast<uint64_t>(sum[2 * slot + lane]);
      }
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("weights on ", device().str(), ", digest: ", std::string(error.what())));
  }
}

}  // namespace tandem::testing
